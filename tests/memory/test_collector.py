"""The collect: memory block: what is accepted, the exact words of what is not, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from aorta_collectors.api import Capture, Expected, Launch, Options, OptionsError, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.memory.collector import Memory
from aorta_collectors.schema_check import load_schema
from tests.memory.left import Left

COLLECTOR = Memory()


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"points": "after_forward, after_step", "scope": "layers.*,(root)", "steps": "1-3,7,10-"},
        {"detail": "totals", "stacks": "0", "on_missing": "warn"},
    ],
)
def test_what_can_be_honoured(raw: dict[str, str]) -> None:
    options = COLLECTOR.validate(raw)
    assert options == COLLECTOR.recall(raw)
    assert dict(options.raw) == raw
    assert COLLECTOR.validate(None) == Options()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"points": "after_stop"},
            (
                "points[0]: must be one of before_forward, after_forward, after_backward, after_step, "
                'got "after_stop"; did you mean after_step?'
            ),
        ),
        ({"point": "after_step"}, "point: unknown option; did you mean points?"),
        ({"steps": "0"}, "steps[0]: must be a step such as 3, a range such as 1-5, or 10- for all from the tenth on"),
        ({"steps": "1,5-3"}, "steps: 5-3 ends before it begins; a range is such as 1-5"),
        ({"stacks": "-1"}, "stacks: must be an integer >= 0, got -1"),
        ({"detail": "all"}, 'detail: must be one of totals, pools, got "all"'),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(raw: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        COLLECTOR.validate(raw)
    assert str(caught.value) == message


def test_all_variables_of_a_launch_are_those_of_the_block(tmp_path: Path) -> None:
    launch = Launch(("python", "train.py", "--lr", "2"))
    options = COLLECTOR.validate({"scope": "a,b", "stacks": "3", "on_missing": "warn"})
    planned = COLLECTOR.plan(launch, options, Capture(tmp_path / "memory", "the trial"))
    ours = {name: value for name, value in planned.env.items() if name.startswith("MEMORY_")}
    names = set(load_schema("memory.options")["properties"]) - {"on_missing"}
    assert set(ours) == {f"MEMORY_{name.upper()}" for name in names} | {"MEMORY_DIR", "MEMORY_RUN_ID"}
    assert {name: value for name, value in ours.items() if value is not None} == {
        "MEMORY_SCOPE": "a,b",
        "MEMORY_STACKS": "3",
        "MEMORY_DIR": str(tmp_path / "memory"),
        "MEMORY_RUN_ID": "the trial",
    }
    assert planned.env["AORTA_COLLECTORS_ARM"] == "aorta_collectors.memory.arming:arm"


def test_a_workload_of_this_process_is_observed_verified_and_measured(tmp_path: Path) -> None:
    place = tmp_path / "memory"
    place.mkdir()
    options = COLLECTOR.validate({"scope": "0", "points": "before_forward,after_backward"})
    with COLLECTOR.armed(options, lambda: Capture(place, "the trial")):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
    assert len(Left(place).points) == 3 * 4
    with Anchor(tmp_path).open(place) as artifacts:
        found = COLLECTOR.verify(artifacts, Expected(options, frozenset({"the trial"})))
        metrics = COLLECTOR.summarize(artifacts)
    assert (found.verdict, found.reason) == (
        Verdict.CAPTURED,
        "12 point(s) over 3 step(s), 1 rank(s); state only, without stacks, of host",
    )
    assert metrics["memory_points"] == 12
    assert int(metrics["memory_peak_rss_bytes"]) > 50 << 20
