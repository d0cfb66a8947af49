"""Eight megabytes that the candidate keeps in each backward pass: named with phase and size, in runs taking turns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.investigate.acceptance.asking import answered
from tests.investigate.support import record

pytestmark = pytest.mark.sweep

SCRIPT = """
import sys
import torch
from torch import nn

kept = []

class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if "--keep" in sys.argv:
            kept.append(torch.ones(2 << 20))
        return gradient

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, batch):
        return self.down(Keep.apply(self.up(batch)))

torch.manual_seed(0)
torch.set_num_threads(1)
model = Model()
for step in range(8):
    model(torch.randn(4, 16)).square().mean().backward()
    model.zero_grad()
"""
#: As many as an interval takes.
REPETITIONS = 6


def test_its_phase_and_size_are_named_with_intervals_over_repetitions(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    commands = ("--baseline", "python train.py", "--candidate", "python train.py --keep")
    design = ("--repetitions", str(REPETITIONS), "--warm-up", "0", "--no-observer-effect")
    found = answered(tmp_path, "memory", *commands, *design, "--points", "before_forward,after_forward,after_backward")

    names = sorted(path.name for path in (found.root / "runs").iterdir())
    order = [record(found.root, name)["variant"] for name in names]
    assert order == ["baseline", "candidate", "candidate", "baseline"] * (REPETITIONS // 2)
    told = found.conclusion("grows by")
    assert "host rss" in told
    assert f"Seen in {REPETITIONS} of {REPETITIONS} pairs" in told
    _, _, phase = told.partition("after_forward -> after_backward: ")
    of_candidate, _, of_baseline = phase.partition(" a step in the candidate, ")
    median, low, high = map(float, re.findall(r"\+(\d\.\d\d) MiB", of_candidate))
    assert 7.5 <= low <= median <= high <= 8.5
    assert "96.9%" in of_candidate
    assert re.match(r"0 B|\+[\d.]+ KiB", of_baseline)
    assert len([path for path in found.artifacts_of(told) if path.name == "memory_rank0.jsonl"]) == 2 * REPETITIONS

    (row,) = re.findall(r"^\| `memory_rss_growth_bytes` .*", found.report, re.MULTILINE)
    baseline, candidate, differences = row.split(" | ")[2:]
    assert re.match(r"(\d+ B|[\d.]+ KiB) \(.*, 96\.9%\)", baseline)
    for text in (candidate, differences):
        median, low, high = map(float, re.findall(r"(\d+\.\d+) MiB", text))
        assert 50 <= low <= median <= high <= 64
