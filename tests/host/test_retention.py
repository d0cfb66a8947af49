"""`retain:` at each of the host's levels: verified first, then removed, and the receipt says what there was."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.host.retention import Retention
from tests.host.support import Sweep, mitigations, once, probe_recipe, sweep_command
from tests.support import run

pytestmark = pytest.mark.sweep

#: Passes, fails with its evidence, or passes without any: an end by a function that nobody watches leaves no trace.
PROGRAM = """
import os, posix, sys
import torch
from torch import nn

ending = os.environ.get("ENDING")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for step in range(1, 5):
    value = float("inf") if step == 3 and ending == "fails" else 1.0
    model(torch.full((2, 4), value)).sum().backward()
if ending == "fails":
    sys.exit(3)
if ending == "lacks":
    posix._exit(0)
"""
BUNDLES = {"fails": {"ENDING": "fails"}, "lacks": {"ENDING": "lacks"}}
BOTH = {"layers_rank0.jsonl", "summary_rank0.json"}


def _swept(directory: Path, **retain: str) -> Sweep:
    (directory / "train.py").write_text(PROGRAM)
    bundles = mitigations(directory / "m.json", BUNDLES)
    axis = ["none", "fails", "lacks"]
    collect = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
    recipe = probe_recipe(directory / "r.yaml", axis, collect=collect, retain=retain)
    options = ["--mitigations-file", str(bundles)]
    return sweep_command(directory, recipe, ["python", "train.py"], *options)


LEVELS = {
    "summaries of passes": {"on_pass": "summary", "on_fail": "none", "on_error": "full"},
    "everything of passes": {"on_pass": "full", "on_fail": "log", "on_error": "none"},
}
#: What is left of the artifacts at each level.
LEFT = {"full": BOTH, "summary": {"summary_rank0.json"}, "log": set(), "none": set()}


@pytest.fixture(scope="module", params=LEVELS)
def retained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, dict[str, str]]:
    levels = LEVELS[request.param]
    name = f"retained_{request.param.replace(' ', '_')}"
    return once(tmp_path_factory, name, lambda directory: _swept(directory, **levels)), levels


def _left(sweep: Sweep, name: str) -> set[str]:
    return {path.name for path in sweep.artifacts(name).glob("*")}


def test_evidence_is_verified_before_it_is_removed(retained: tuple[Sweep, dict[str, str]]) -> None:
    sweep, levels = retained
    for name, level in (("none", levels["on_pass"]), ("fails", levels["on_fail"])):
        receipt = sweep.receipt(name)
        assert receipt["verdict"] == ("captured" if level == "full" else "pruned"), receipt["reason"]
        assert receipt["files"].keys() == BOTH
        assert receipt["metrics"]["layer_numerics_steps"] > 0
        assert _left(sweep, name) == LEFT[level]
    assert sweep.command("none")["verdict"] == "pass"
    assert sweep.command("fails")["verdict"] == "fail"


def test_a_pass_without_evidence_is_kept_as_an_error_is(retained: tuple[Sweep, dict[str, str]]) -> None:
    """The host takes it for a pass when it removes artifacts; what is left of them shows why it is none."""
    sweep, levels = retained
    assert sweep.receipt("lacks")["verdict"] == "incomplete"
    assert sweep.command("lacks")["verdict"] == "error"
    notes = {"sigterm_rank0.txt", "sighup_rank0.txt"}  # of a process of which nobody saw the end
    assert _left(sweep, "lacks") - notes == LEFT[levels["on_error"]]
    assert sweep.trial("lacks")["config"]["_aorta_probe_extras"]["retain"] == levels


def test_a_later_look_agrees(retained: tuple[Sweep, dict[str, str]]) -> None:
    sweep, _ = retained
    assert sweep.ran.code == 1
    assert "1 of 3 requests for evidence not satisfied (cells: lacks-none)" in sweep.ran.err
    ran = run(["aorta-collectors", "verify", str(sweep.run_dir)], sweep.run_dir)
    assert ran.code == 1
    assert "2 of 3 requests satisfied" in ran.out


def test_once_a_pass_counts_as_an_error_the_level_of_errors_says_what_is_removed() -> None:
    """Of several collectors one may lack evidence; what the others left is removed with it."""
    extras = {"retain": {"on_pass": "full", "on_error": "summary"}}
    retention = Retention(extras)
    assert not retention.removes("pass")
    retention.treat_pass_as_error()
    assert retention.removes("pass")
    retention.restore()
    assert extras == {"retain": {"on_pass": "full", "on_error": "summary"}}
