"""A candidate that is slow only while observed: found by the paired runs, so that its timing counts for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.investigate.acceptance.asking import answered

pytestmark = pytest.mark.sweep

SCRIPT = """
import os, sys, time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
for step in range(4):
    if "--wait" in sys.argv and any(name in os.environ for name in ("NUMERICS_DIR", "TENSORS_DIR")):
        time.sleep(1.5)
    model(torch.randn(4, 8)).sum().backward()
"""


def test_it_is_told_with_numbers_and_the_comparison_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    commands = ("--baseline", "python train.py", "--candidate", "python train.py --wait")
    found = answered(tmp_path, "timing", *commands, "--repetitions", "1", "--warm-up", "0")

    told = found.conclusion("The tool slows the candidate more")
    assert "Durations with the tool say nothing of the difference between the variants" in told
    assert "There is 1 pair of each without an interval" in told
    assert {path.name for path in found.artifacts_of(told)} == {"run.json"}
    timed = {how: [text for text in found.conclusions if f"{how} the tool, " in text] for how in ("With", "Without")}
    assert sum("a step of" in text for text in timed["With"]) == 1
    assert len(timed["With"]) == 2
    assert all("this comparison does not hold" in text for text in timed["With"])
    assert len(timed["Without"]) == 1
    assert "does not hold" not in timed["Without"][0]
    too_few = "not enough steps: 3 were timed, and comparing steps of two runs takes 8"
    assert too_few in found.report.partition("## Tool Gaps")[2]
