"""The collect: tensors block: what is accepted, the exact words of what is not, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from aorta_collectors.api import Capture, Launch, Options, OptionsError
from aorta_collectors.tensors.collector import Tensors
from aorta_collectors.tensors.config import Config
from tests.tensors.left import Left

COLLECTOR = Tensors()


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {
            "points": "before_forward, after_step",
            "scope": "layers.*.attn,head",
            "steps": "1-3, 10-",
            "on_missing": "warn",
        },
        {"keep": "values", "max_bytes": "1000"},
        {"scope": "(root)", "steps": "7"},
    ],
)
def test_what_can_be_honoured(raw: dict[str, str]) -> None:
    options = COLLECTOR.validate(raw)
    assert options == COLLECTOR.recall(raw)
    assert dict(options.raw) == raw


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"points": "after_forwards"},
            (
                "points[0]: must be one of before_forward, after_forward, after_backward, after_step, got "
                '"after_forwards"; did you mean after_forward?'
            ),
        ),
        ({"point": "after_step"}, "point: unknown option; did you mean points?"),
        ({"keep": "all"}, 'keep: must be one of digest, values, got "all"'),
        ({"max_bytes": "10"}, "max_bytes: has no effect without keep: values; keep is digest"),
        ({"keep": "values", "max_bytes": "0"}, "max_bytes: must be an integer >= 1, got 0"),
        (
            {"steps": "0"},
            "steps[0]: must be a step such as 3, a range such as 1-5, or 10- for all from the tenth on",
        ),
        ({"steps": "5-3"}, "steps: 5-3 ends before it begins; a range is such as 1-5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_honoured_is_refused_by_name(raw: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        COLLECTOR.validate(raw)
    assert str(caught.value) == message


def test_defaults_are_those_of_the_schema() -> None:
    defaults = {
        name: option["default"] for name, option in COLLECTOR.schema["properties"].items() if "default" in option
    }
    asked = Config().describe()
    assert {name: value for name, value in defaults.items() if name != "on_missing"} == {
        name: value for name, value in asked.items() if value is not None
    }
    assert {name for name, value in asked.items() if value is None} == {"scope", "steps"}


@pytest.mark.parametrize(
    ("words", "observed"),
    [
        (None, [0, 1, 2, 3, 10, 1000]),
        (("3",), [3]),
        (("2-3", "10-"), [2, 3, 10, 1000]),
    ],
)
def test_steps_that_are_observed(words: tuple[str, ...] | None, observed: list[int]) -> None:
    config = Config(steps=words)
    assert [step for step in (0, 1, 2, 3, 10, 1000) if config.observes_step(step)] == observed


class TestPlan:
    def test_all_variables_are_those_of_the_block(self, tmp_path: Path) -> None:
        options = COLLECTOR.validate({"steps": "1-3", "on_missing": "warn"})
        env = COLLECTOR.plan(Launch(("python", "train.py")), options, Capture(tmp_path / "tensors", "the trial")).env
        assert {name: value for name, value in env.items() if name.startswith("TENSORS_")} == {
            "TENSORS_POINTS": None,
            "TENSORS_SCOPE": None,
            "TENSORS_KEEP": None,
            "TENSORS_MAX_BYTES": None,
            "TENSORS_STEPS": "1-3",
            "TENSORS_DIR": str(tmp_path / "tensors"),
            "TENSORS_RUN_ID": "the trial",
        }


def test_a_workload_in_the_process_of_the_host(tmp_path: Path) -> None:
    options = COLLECTOR.validate({"points": "after_forward"})
    with COLLECTOR.armed(options, lambda: Capture(tmp_path, "the trial")):
        nn.Linear(2, 2)(torch.ones(1, 2))
    left = Left(tmp_path)
    assert left.names == ["after_forward:(root).output"]
    assert left.verified({"points": "after_forward"}).verdict.satisfied
    assert options != Options()
