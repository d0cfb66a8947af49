"""A NaN that depends on the seed, in five repetitions; interrupted once, killed once, and still answered in full."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from aorta_collectors.investigate.report.conclusion import numbers
from tests.investigate.acceptance.asking import Asked, asked
from tests.investigate.support import OURS, OUTSIDE_GIT, record
from tests.investigate.test_resume import wait_for
from tests.support import BIN, interruptible

pytestmark = pytest.mark.sweep

#: The layer "root" takes the root of what is negative where a batch happens to have a small value.
SCRIPT = """
import os
import torch
from torch import nn

class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x + 2.6)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.root, self.head = nn.Linear(8, 8), Root(), nn.Linear(8, 1)

    def forward(self, batch):
        return self.head(self.root(batch) + self.down(batch))

torch.manual_seed(int(os.environ["INVESTIGATION_SEED"]))
torch.set_num_threads(1)
model = Model()
for step in range(1, 6):
    print(step, model(torch.randn(4, 8)).mean().item(), flush=True)
"""


def test_which_seeds_have_it_and_where_it_begins_in_each(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("--baseline", "python train.py", "--repetitions", "5", "--seed", "0", "--no-observer-effect")
    found = asked(tmp_path, "finite", *words)
    _ended_by(signal.SIGINT, found, "001-baseline-1")
    _ended_by(signal.SIGKILL, found, "002-baseline-2")
    kept = {name: record(found.root, name) for name in ("001-baseline-1", "001-baseline-1-attempt2")}
    assert "5 completed, 0 failed, 0 left" in found.runs().ok().out
    assert {name: record(found.root, name) for name in kept} == kept
    assert {path.name: record(found.root, path.name)["state"] for path in (found.root / "runs").iterdir()} == {
        "001-baseline-1": "interrupted",
        "001-baseline-1-attempt2": "completed",
        "002-baseline-2": "interrupted",
        "002-baseline-2-attempt2": "completed",
        **{f"00{number}-baseline-{number}": "completed" for number in (3, 4, 5)},
    }

    found.reports()
    assert "all is as it was recorded" in found.verifies().ok().out
    first_steps = {seed: step for seed in range(5) if (step := _first_nan(found, seed)) is not None}
    assert 0 < len(first_steps) < 5, "the script has to be one whose NaN depends on the seed"
    told = found.conclusion("NaN or Inf in")
    repetitions = [seed + 1 for seed in first_steps]
    assert f"in repetitions {numbers(repetitions)} (seeds {numbers(first_steps)}) of 5" in told
    for seed, step in first_steps.items():
        assert re.search(rf"repetition {seed + 1}: step {step}\b[^;.]* root\b", told), (seed, step)
    clean = sorted(set(range(5)) - first_steps.keys())
    depends = found.conclusion("goes with the seed")
    assert f"seeds {numbers(clean)} are, {numbers(first_steps)} are not" in depends
    assert {path.name for path in found.artifacts_of(told)} >= {"summary_rank0.json", "layers_rank0.jsonl"}
    assert "002-baseline-2-attempt2" in found.report


def _ended_by(number: int, found: Asked, run: str) -> None:
    """Start the runs, and send a signal in the middle of one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "AORTA_"))}
    environment = {**inherited, **OUTSIDE_GIT, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [OURS, "investigate", "run", "root"],
        cwd=found.cwd,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    try:
        wait_for(lambda: (found.root / "runs" / run / "bundles").exists())
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "To go on: aorta-collectors investigate run root" in told


def _first_nan(found: Asked, seed: int) -> int | None:
    """The step in which the program itself printed one, with this seed."""
    (log,) = [
        path
        for path in (found.root / "runs").glob("*/stdout.log")
        if (run := record(found.root, path.parent.name))["seed"] == seed and run["state"] == "completed"
    ]
    steps = [int(line.split()[0]) for line in log.read_text().splitlines() if line.endswith("nan")]
    return min(steps, default=None)
