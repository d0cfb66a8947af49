"""Percentiles of steps and their phases."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.numerics.metrics.intervals import Intervals
from aorta_collectors.numerics.part import StepTrace

MS = 1_000_000


def trace(step: int, step_ms: float, kind: str = "training", *, counted: bool = False, **phases: float) -> StepTrace:
    return StepTrace(
        step,
        kind,
        start_ns=7 * MS,
        end_ns=7 * MS + int(step_ms * MS),
        phases_ns={name: int(value * MS) for name, value in phases.items()},
        is_counted=counted,
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.01, 10_000), min_size=1, max_size=60))
def test_percentiles_are_within_five_percent(durations: list[float]) -> None:
    intervals = Intervals(1000, lambda line: None)
    for number, duration in enumerate(durations, 1):
        intervals.step_ended(trace(number, duration, forward=duration / 2))
    phases = intervals.fields()["phases"]
    assert phases["step"]["count"] == phases["forward"]["count"] == len(durations)
    assert phases["step"]["total_ms"] == pytest.approx(sum(durations), rel=1e-4, abs=0.001)
    for name, factor in (("step", 1.0), ("forward", 0.5)):
        for percent in (50, 95, 99):
            exact = numpy.percentile(durations, percent) * factor
            assert phases[name][f"p{percent}_ms"] == pytest.approx(exact, rel=0.05)


def test_each_interval_has_its_own_and_a_line() -> None:
    said: list[str] = []
    intervals = Intervals(2, said.append)
    for number, duration in enumerate((10, 10, 40, 40, 90), 1):
        intervals.step_ended(trace(number, duration, forward=duration / 2, opt=1, blk_bwd=3, data=2))
    told = intervals.fields()["intervals"]
    assert [(interval["first_step"], interval["last_step"]) for interval in told] == [(1, 2), (3, 4)]
    assert [interval["phases"]["step"]["p99_ms"] for interval in told] == pytest.approx([10, 40], rel=0.05)
    assert len(said) == 2
    assert said[0].startswith("steps 1-2: p50/p95/p99 ms: step ")
    assert [part.split()[0] for part in said[0].split(": ")[2].split(", ")] == ["step", "forward", "blk_bwd", "data"]


def test_an_interval_tells_what_its_steps_got_done() -> None:
    said: list[str] = []
    intervals = Intervals(3, said.append)
    for number, kind in enumerate(("training", "training", "evaluation"), 1):
        ended = trace(number, 50, kind)
        line = {"kind": kind, "is_counted": False, "step_ms": 50.0, "samples": 4, "tokens": 64}
        if number == 2:
            ended.past_metrics.append(line)  # from a device, of the step before
        else:
            ended.metrics = line
        intervals.step_ended(ended)
    (told,) = intervals.fields()["intervals"]
    assert (told["samples_per_s"], told["tokens_per_s"]) == pytest.approx((80, 1280))
    assert said[0].startswith("steps 1-3: 1280 tok/s, p50/p95/p99 ms: step ")


def test_counted_steps_and_evaluations_are_left_out() -> None:
    intervals = Intervals(3, lambda line: None)
    intervals.step_ended(trace(1, 10))
    intervals.step_ended(trace(2, 500, counted=True))
    intervals.step_ended(trace(3, 2, "evaluation"))
    fields = intervals.fields()
    assert fields["phases"]["step"]["count"] == 1
    assert fields["phases"]["step"]["p99_ms"] == pytest.approx(10, rel=0.05)
    assert (fields["intervals"][0]["first_step"], fields["intervals"][0]["last_step"]) == (1, 3)


def test_only_the_last_hundred_intervals_are_kept() -> None:
    intervals = Intervals(1, lambda line: None)
    for number in range(1, 151):
        intervals.step_ended(trace(number, 1))
    told = intervals.fields()["intervals"]
    assert (len(told), told[0]["first_step"], told[-1]["last_step"]) == (100, 51, 150)


def test_what_observing_took_is_no_time_of_the_step() -> None:
    intervals = Intervals(10, pytest.fail)
    for number in (1, 2):
        ended = trace(number, 10)
        ended.overhead_ns = 4 * MS
        intervals.step_ended(ended)
    assert intervals.fields()["phases"]["step"]["total_ms"] == pytest.approx(12, rel=1e-6)
