"""What its verification says of files, and the collector in real sweeps. The package has to be installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from loss_collector.collector import Losses

from aorta_collectors.api import Expected, Options

RECIPE = """
schema_version: 1
mode: probe
ticket: LOSS
trials: 1
mitigation_axis: [none]
diagnostic_axis: [none]
collect:
  losses: {EVERY: "2"}
"""
TRAINS = """
import torch
weight = torch.ones(3, requires_grad=True)
for step in range(5):
    loss = (weight * 2).sum()
    loss.backward()
    with torch.no_grad():
        weight -= weight.grad
        weight.grad = None
"""


class Files:
    """Artifacts by their names and texts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def sizes(self) -> Mapping[str, int]:
        return {name: len(text) for name, text in self._texts.items()}

    def read(self, name: str, limit_bytes: int = 1 << 20) -> bytes:
        return self._texts[name].encode()

    def lines(self, name: str) -> Iterator[bytes]:
        yield from self.read(name).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        ({}, "missing"),
        ({"losses_1.jsonl": '{"run_id": "other", "ended_after": 3}'}, "stale"),
        ({"losses_1.jsonl": '{"run_id": "this", "step": 1, "loss": 0.5}'}, "incomplete"),
        ({"losses_1.jsonl": '{"run_id": "this", "ended_after": 3}'}, "captured"),
    ],
)
def test_the_verdict_on_files(texts: Mapping[str, str], verdict: str) -> None:
    assert Losses().verify(Files(texts), Expected(Options(), frozenset({"this"}))).verdict == verdict


def sweep(cwd: Path, program: str) -> subprocess.CompletedProcess[str]:
    (cwd / "recipe.yaml").write_text(RECIPE)
    command = [str(Path(sys.executable).parent / "aorta-collectors"), "sweep", "run", "--recipe", "recipe.yaml"]
    argv = [*command, "--output", "out", "--", sys.executable, "-c", program]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_program_that_trains_has_its_losses(tmp_path: Path) -> None:
    ran = sweep(tmp_path, TRAINS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (written,) = tmp_path.glob("out/LOSS/none-none/_subprocess/trial_d0_m0_t0/losses/losses_*.jsonl")
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert [(line.get("step"), line.get("loss")) for line in lines] == [(1, 6.0), (3, -18.0), (5, -42.0), (None, None)]
    receipt = json.loads((written.parents[2] / "receipt_d0_m0_t0_losses.json").read_text())
    assert receipt["verdict"] == "captured"
    assert receipt["metrics"] == {"losses_lowest": -42.0, "losses_last": -42.0}


def test_a_program_that_does_not_train_does_not_pass(tmp_path: Path) -> None:
    ran = sweep(tmp_path, "pass")
    assert ran.returncode == 1
    assert "no process called backward()" in ran.stdout
