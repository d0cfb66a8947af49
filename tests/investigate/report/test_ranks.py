"""Conclusions about ranks: who differs, by how much, after what, and why nothing could be held against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.investigate.report.conclusion import Standing
from tests.investigate.made import Made, Write, layers
from tests.investigate.test_report import report_of


def of_ranks(*values: tuple[float, ...], kind: str) -> Write:
    def write(directory: Path) -> None:
        for rank, of_rank in enumerate(values):
            layers(*of_rank, rank=rank, ranks=len(values), kind=kind)(directory)

    return write


@pytest.mark.parametrize(
    ("values", "who"),
    [
        (((1, 2, 3), (1, 2, 3.5)), "ranks differ (0 | 1), and no majority says which is right"),
        (((1, 2, 3), (1, 2, 3.5), (1, 2, 3)), "rank 1 differs from the others"),
    ],
)
def test_how_far_apart_and_what_came_before(tmp_path: Path, values: tuple[tuple[float, ...], ...], who: str) -> None:
    collect = "tensors:keep=values,points=after_step"
    made = Made(tmp_path, commands={"baseline": "python train.py"}, collect=collect)
    made.run(1, of_ranks(*values, kind="parameter"))
    (conclusion,) = report_of(made).report.conclusions
    assert f"part first at after_step:layers.2.weight, invocation 0 (step 1): {who}; " in conclusion.text
    assert "at element [0, 0] rank 0 has 3 and rank 1 3.5, which are 0.5 apart (relative 0.1667, " in conclusion.text
    assert "; 6 of 6 elements are outside of the criterion (" in conclusion.text
    assert "; of parameters, 2 observations before it match on all ranks. Seen in" in conclusion.text


def test_that_they_were_not_held_against_each_other_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path, commands={"baseline": "python train.py"})
    made.run(1, of_ranks((1, 2), (3, 4), kind="output"))
    (conclusion,) = report_of(made).report.conclusions
    assert conclusion.standing is Standing.OPEN
    assert conclusion.text.startswith("Ranks were not held against each other: no parameters and no gradients")
    assert "differs by nature where each has its own part of a batch" in conclusion.text


def test_of_one_rank_nothing_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path, commands={"baseline": "python train.py"})
    made.run(1, layers(1))
    assert report_of(made).report.conclusions == ()
