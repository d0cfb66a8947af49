"""What is said after a run of those that follow, each thing once."""

from __future__ import annotations

from pathlib import Path

from aorta_collectors.investigate.advice import Advice
from aorta_collectors.investigate.design import Design
from tests.investigate.made import Made, layers


def told(made: Made) -> list[list[str]]:
    advice = Advice(made.investigation)
    return [list(advice.after(run)) for run in made.investigation.runs()]


def test_a_point_that_no_run_has_is_told_once_and_not_after_the_last(tmp_path: Path) -> None:
    points = ("user:nothere",)
    made = Made(tmp_path, points=points, design=Design.of("values", repetitions=2, observer_effect=False))
    made.all({"baseline": layers(1), "candidate": layers(1)})
    first, *others = told(made)
    expected = (
        "3 more runs with the tool are to have user:nothere, and fail likewise where the program does not come by "
        "there. Ctrl-C stops; a new investigation can name other points"
    )
    assert first == [expected]
    assert others == [[], [], []]


def test_a_program_that_crashed_before_a_point_says_nothing_of_the_others(tmp_path: Path) -> None:
    made = Made(tmp_path, points=("user:nothere",), design=Design.of("values", observer_effect=False))
    made.all({"baseline": layers(1), "candidate": layers(1)}, exit_code=1, verdict="fail")
    assert told(made) == [[], []]
