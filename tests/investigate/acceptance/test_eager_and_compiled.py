"""Eager against torch.compile (inductor): a layer that computes something else when compiled, and none that does.

The clean case is a question about artifacts that are there already: the eager run of the first, and a run alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.investigate.acceptance.asking import Asked, answered
from tests.investigate.support import investigate
from tests.support import PYTHON, records, run

pytestmark = pytest.mark.sweep

#: With --compile it is compiled; --plant has the second block scale by a little more there.
SCRIPT = """
import sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, planted):
        super().__init__()
        self.up, self.planted = nn.Linear(8, 8), planted

    def forward(self, hidden):
        up = torch.relu(self.up(hidden))
        return up * 1.01 if self.planted and torch.compiler.is_compiling() else up

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(Block(False), Block("--plant" in sys.argv), nn.Linear(8, 1))
if "--compile" in sys.argv:
    model = torch.compile(model)
for step in range(2):
    with torch.no_grad():
        print(model(torch.randn(4, 8)).sum().item())
"""
SCOPE = "(root),?,?.*"


def test_the_layer_that_differs_is_named_and_without_it_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    commands = ("--baseline", "python train.py --plant", "--candidate", "python train.py --plant --compile")
    collect = ("--collect", f"tensors:keep=values,points=after_forward,scope={SCOPE}")
    planted = answered(tmp_path, "values", *commands, *collect, "--no-observer-effect")
    first = planted.conclusion("First divergence")
    assert "after_forward:1.output, invocation 0 (step 1)" in first
    assert "1 of 1 pair" in first
    artifacts = {path.name for path in planted.artifacts_of(first)}
    assert artifacts >= {"tensors_rank0.jsonl", "summary_rank0.json", "values_rank0_step1.safetensors"}

    _without_it(tmp_path, planted)


def _without_it(tmp_path: Path, planted: Asked) -> None:
    options = ["--keep", "values", "--points", "after_forward", "--scope", SCOPE, "--dir", "clean"]
    run([PYTHON, "-m", "aorta_collectors.tensors", *options, "train.py", "--compile"], tmp_path).ok()
    lines = records(tmp_path / "clean" / "tensors_rank0.jsonl")
    assert {line["layer"] for line in lines if line["compiled"]} >= {"0.up", "0", "1.up", "1", "2"}
    baseline = planted.root / "runs" / "001-baseline-1" / "bundles"
    cwd = tmp_path / "later"
    cwd.mkdir()
    said = ["--question", "Is it the same without the plant?", "--criterion", "all points match"]
    investigate(cwd, "open", "root", *said, "--baseline", str(baseline), "--candidate", str(tmp_path / "clean")).ok()
    clean = Asked(cwd)
    clean.reports()
    assert "Existing artifacts." in clean.report
    told = clean.conclusion("No divergence at the points observed")
    assert "12 observations match" in told
    clean.artifacts_of(told)
    clean.verifies().ok()
    assert json.loads((clean.root / "metadata.json").read_text())["mode"] == "existing artifacts"

    summary = tmp_path / "clean" / "summary_rank0.json"
    summary.write_text(summary.read_text() + " ")
    verified = clean.verifies()
    assert verified.code == 1
    assert f"{summary}: it was changed since the investigation was opened" in verified.out
