"""Conclusions about NaN and Inf: where they begin only where that is known, and of each trial of what was there."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.existing import open_existing
from aorta_collectors.investigate.report.finite import Finite, First, conclude_finite
from aorta_collectors.investigate.report.subjects import Subject
from tests.investigate.made import TENSORS, Made, layers
from tests.investigate.support import declared, investigate
from tests.investigate.test_report import report_of, report_of_root, section

#: The root of something negative, in a module without weights.
SQRT = """
import torch
from torch import nn

class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.root, self.head = Root(), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.root(x))

torch.set_num_threads(1)
model = Model()
for step in range(2):
    model(torch.ones(2, 4) - 2 * step)
"""
SEEN = "It was seen first, among what was observed"


def finite(repetition: int, first: First | None, *, is_finite: bool = False) -> Finite:
    subject = Subject("baseline", repetition, f"run-{repetition}", Path("/x"), Path("/x"), {}, (), run=_Run())  # type: ignore[arg-type]
    return Finite(subject, "", is_finite, first)


class _Run:
    """As much of a run as conclusions look at."""

    directory = Path("/x")
    record = {"seed": None}
    state = "completed"


@pytest.mark.parametrize(
    ("firsts", "said"),
    [
        ([First("a", is_origin=True)], "It begins at a."),
        ([First("a")], "It was seen first, among what was observed, at a."),
        ([First("a"), First("a")], "It was seen first, among what was observed, at a."),
        (
            [First("a", is_origin=True), First("b", is_origin=True)],
            "It begins, in repetition 1: a; in repetition 2: b.",
        ),
        (
            [First("a", is_origin=True), First("a"), None],
            f"It begins, in repetition 1: a. {SEEN}, in repetition 2: a. Where is not known in repetition 3.",
        ),
        ([None], "Where is not known."),
    ],
)
def test_no_more_is_said_than_is_known(firsts: list[First | None], said: str) -> None:
    found = [finite(repetition, first) for repetition, first in enumerate(firsts, 1)]
    (conclusion,) = conclude_finite(found, ["baseline"], [])
    assert conclusion.text.partition("of the baseline. ")[2] == said


@pytest.mark.sweep
def test_a_module_without_weights_is_named_as_the_origin(tmp_path: Path) -> None:
    design = Design.of("finite", observer_effect=False)
    made = declared(tmp_path / "root", tmp_path, commands={"baseline": "python train.py"}, design=design)
    (tmp_path / "train.py").write_text(SQRT)
    investigate(tmp_path, "run", "root").ok()
    (conclusion,) = report_of_root(made.investigation).conclusions
    assert "It begins at step 2, fwd act of root: 8 of 8 NaN, float32, rank 0 (" in conclusion.text


class TestExisting:
    def test_each_trial_is_told_apart(self, tmp_path: Path) -> None:
        design = Design.of("values", repetitions=3, observer_effect=False)
        made = Made(tmp_path, collect=TENSORS, commands={"baseline": "python train.py"}, design=design)
        for number in range(1, 4):
            made.run(number, layers(1, math.nan if number > 1 else 2))
        investigation = open_existing(tmp_path / "two", "Which?", "none", "finite", {"baseline": made.root / "runs"})
        (conclusion,) = report_of_root(investigation).conclusions
        assert conclusion.text.startswith("NaN or Inf in 2 of 3 trials of the baseline. It was seen first, among what")
        assert conclusion.text.count("step 1, after_forward:layers.1.output, invocation 0: 6 NaN") == 1
        assert "in 002-baseline-2/" in conclusion.text
        assert "003-baseline-3/" in conclusion.text
        assert "001-baseline-1/" not in conclusion.text
        assert "repetition" not in conclusion.text

    def test_trials_that_are_all_clean(self, tmp_path: Path) -> None:
        layers(1)(tmp_path / "a")
        investigation = open_existing(tmp_path / "root", "Is it?", "it is", "finite", {"baseline": tmp_path / "a"})
        report = report_of_root(investigation)
        assert [each.text for each in report.conclusions] == ["No NaN or Inf in what was observed of the baseline."]


@pytest.mark.parametrize(
    ("kind", "collect", "is_said"), [("finite", "layer_numerics", False), ("values", TENSORS, True)]
)
def test_when_tensors_count_as_the_same_is_said_where_some_are_compared(
    tmp_path: Path, kind: str, collect: str, is_said: bool
) -> None:
    made = Made(tmp_path, kind=kind, collect=collect)
    assert ("Tensors count as the same" in section(report_of(made).files["REPORT.md"], "Design")) == is_said
