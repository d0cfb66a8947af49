"""Which bricks are escalated, and how often."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.profile.bricks import Reading
from aorta_collectors.numerics.profile.escalation.triggers import Trigger, Triggers

_STEP_US = 10_000.0


class _Given:
    """Readings that a test has made up."""

    def __init__(self, *given: Reading) -> None:
        self._given = given

    def readings(self, least_calls: int, least_us: float, least_total_us: float) -> Sequence[Reading]:
        return [
            one
            for one in self._given
            if one.calls >= least_calls and one.mean_us >= least_us and one.calls * one.mean_us >= least_total_us
        ]


def _row(layer: str = "a", **changed: Any) -> Reading:
    return Reading(layer, "forward", 10, 1000.0, 0.0, None)._replace(**changed)


def _warm(config: Config | None = None) -> Triggers:
    triggers = Triggers(config or Config(profile="deferred"))
    for step in (1, 2, 3):
        assert not triggers.found(_Given(_row(cv=9.0)), step, _STEP_US)
    return triggers


def _found(*rows: Reading, config: Config | None = None, step: int = 4) -> list[Trigger]:
    return _warm(config).found(_Given(*rows), step, _STEP_US)


def test_one_that_varies_is_unstable() -> None:
    assert _found(_row(cv=0.15)) == []
    assert _found(_row(cv=0.16, efficiency=0.9)) == [Trigger("a", "forward", "unstable", 0.16, 0.15, 0.9, False)]


def test_one_far_under_the_roofline_is_inefficient() -> None:
    assert _found(_row(efficiency=0.25)) == []
    assert _found(_row(efficiency=0.2)) == [Trigger("a", "forward", "inefficient", 0.2, 0.25, 0.2, True)]


def test_both_reasons_are_given() -> None:
    assert [each.reason for each in _found(_row(cv=1.0, efficiency=0.0))] == ["unstable", "inefficient"]


def test_thresholds_are_the_users() -> None:
    config = Config(profile="deferred", cv_threshold=0.5, efficiency_threshold=0.0)
    assert _found(_row(cv=0.4, efficiency=0.0), config=config) == []


def test_few_calls_short_bricks_and_small_parts_of_the_step_are_not_worth_it() -> None:
    assert _found(_row(cv=1.0, calls=9)) == []
    assert _found(_row(cv=1.0, mean_us=49.0, calls=10_000)) == []
    assert _found(_row(cv=1.0, mean_us=60.0, calls=4)) == []  # too few as well
    triggers = _warm()
    assert triggers.found(_Given(_row(cv=1.0, mean_us=60.0)), 4, 100_000.0) == []  # 600 of 130,000 us
    assert _found(_row(cv=1.0, mean_us=60.0)) != []  # of 40,000 us


def test_each_reason_comes_once_in_a_hundred_steps() -> None:
    triggers = _warm()

    def comes(step: int) -> bool:
        return bool(triggers.found(_Given(_row(cv=1.0, calls=10 + step)), step, 0.0))

    assert [step for step in (4, 5, 103, 104, 105, 203, 204) if comes(step)] == [4, 104, 204]


def test_going_through_the_table_takes_a_fifth_of_a_second_and_a_hundredth_of_the_time() -> None:
    class Slow(_Given):
        def readings(self, *least: Any) -> Sequence[Reading]:
            time.sleep(0.002)
            return super().readings(*least)

    triggers = _warm()
    began = time.perf_counter()
    asked = [row for row in range(1000) if triggers.found(Slow(_row(layer=str(row), cv=1.0)), 4, 0.0)]
    assert 10 <= len(asked) <= 1 + (0.2 + 0.01 * (time.perf_counter() - began)) / 0.002


def test_one_that_was_not_called_since_is_not_due_again() -> None:
    triggers = _warm()
    assert triggers.found(_Given(_row(cv=1.0)), 4, 0.0)
    assert not triggers.found(_Given(_row(cv=1.0)), 500, 0.0)
