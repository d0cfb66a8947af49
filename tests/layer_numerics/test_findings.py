"""What a summary tells beside first_bad: the first value that is not finite, scopes that match nothing, wrong names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.collector import LayerNumerics
from tests.support import PYTHON, Ran, run, summary

GROW = """
import torch
from torch import nn

class Times(nn.Module):
    def forward(self, x):
        return x * 1e6

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), Times(), nn.Linear(2, 2))
x = torch.ones(1, 2)
for step in range(8):
    x = model(x).detach()
    print(step)
"""


def _run(tmp_path: Path, env: dict[str, str]) -> Ran:
    argv = [PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", GROW]
    return run(argv, tmp_path, {"NANLOG_DIR": "out", **env}).ok()


def test_the_first_value_that_is_not_finite_is_told_apart_from_the_first_huge_one(tmp_path: Path) -> None:
    _run(tmp_path, {"NANLOG_WATCH_TYPES": "*", "NANLOG_CHANNELS": "act"})
    found = summary(tmp_path / "out")
    assert found["watched_names"] == ["(root)", "0", "1", "2"]
    assert found["first_bad"]["kind"] == "huge"
    lost = found["first_nonfinite"]
    assert lost["kind"] in ("inf", "nan")
    assert lost["step"] > found["first_bad"]["step"]


def test_a_misspelt_variable_is_warned_of(tmp_path: Path) -> None:
    ran = _run(tmp_path, {"NANLOG_CHANELS": "act"})
    assert "WARNING: NANLOG_CHANELS: unknown, and ignored; did you mean NANLOG_CHANNELS?" in ran.err


@pytest.mark.parametrize(("kind", "verdict"), [("Linear", Verdict.CAPTURED), ("Lineer", Verdict.MISAPPLIED)])
def test_a_watch_group_that_matches_nothing_is_not_passed_over(tmp_path: Path, kind: str, verdict: Verdict) -> None:
    spec = {"watch": [{"scope": {"types": [name]}, "tensors": ["output"]} for name in ("Times", kind)]}
    options = LayerNumerics().validate({"NANLOG_SPEC": json.dumps(spec)})
    _run(tmp_path, {"NANLOG_SPEC": json.dumps(spec), "NANLOG_RUN_ID": "this run"})
    with Anchor(tmp_path).open(tmp_path / "out") as artifacts:
        verification = LayerNumerics().verify(artifacts, Expected(options, frozenset({"this run"})))
    assert verification.verdict is verdict, verification.reason
    if verdict is Verdict.MISAPPLIED:
        assert "watch[1] matches no module" in verification.reason
        assert "Lineer" in verification.reason
