"""The engine's own cost: quantiles within 5 % of the exact ones, in memory that does not grow."""

from __future__ import annotations

import tracemalloc

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.cost import Cost, Histogram, Series

_DURATIONS = st.one_of(st.just(0.0), st.floats(1e-9, 1e6), st.sampled_from([1e-9, 1.09e-9, 1.0, 60.0, 5e6]))


class TestHistogram:
    """Quantiles of durations."""

    @given(st.lists(_DURATIONS, min_size=1, max_size=200), st.floats(0, 1))
    def test_a_quantile_is_within_5_percent_of_the_exact_one(self, durations: list[float], share: float) -> None:
        times = Histogram()
        for duration in durations:
            times.add(duration)
        assert times.quantile(share) == pytest.approx(float(numpy.quantile(durations, share)), rel=0.05, abs=1e-15)
        assert times.count == len(durations)
        assert times.total == pytest.approx(sum(durations))

    def test_without_a_duration_there_is_no_quantile(self) -> None:
        assert Histogram().quantile(0.5) is None

    def test_durations_beyond_the_ends_count_at_the_ends(self) -> None:
        times = Histogram()
        times.add(1e-12)
        assert times.quantile(1.0) == 0.0
        times.add(1e12)
        assert times.quantile(1.0) == pytest.approx(60 * 86400, rel=0.1)


class TestSeries:
    """Durations in their order."""

    def test_few_are_kept_as_they_are(self) -> None:
        series = Series()
        for milliseconds in range(1, 1024):
            series.add(milliseconds / 1e3)
        assert series.milliseconds() == list(range(1, 1024))
        assert series.per_value == 1

    @given(st.integers(1024, 9000))
    @settings(max_examples=20, deadline=None)
    def test_many_become_means_of_as_many_neighbours_each(self, number: int) -> None:
        series = Series()
        for index in range(number):
            series.add(index / 1e3)
        values, each = series.milliseconds(), series.per_value
        assert each in (2, 4, 8, 16)
        assert 512 <= len(values) < 1024
        assert len(values) == number // each
        assert values == [place * each + (each - 1) / 2 for place in range(len(values))]


class TestCost:
    """Steps, hooks and drains."""

    def test_the_times_of_steps_are_those_between_their_beginnings(self) -> None:
        cost = Cost()
        assert cost.step_times() == {"step_times_ms": [], "steps_per_time": 1}
        for now in (5.0, 5.1, 5.3000004):
            cost.end_step(now)
        cost.finish(60.0)
        assert cost.step_times() == {"step_times_ms": [100.0, 200.0], "steps_per_time": 1}
        assert cost.fields()["steps_measured"] == 3
        cost.end_step(100.0)
        cost.end_step(100.4)
        assert cost.step_times()["step_times_ms"] == [100.0, 200.0, 400.0]

    def test_nothing_measured_is_null_not_zero(self) -> None:
        names = [f"{name}_ms_p{percent}" for name in ("hook", "drain", "step") for percent in (50, 95)]
        assert Cost().fields() == {"steps_measured": 0, **dict.fromkeys([*names, "share_of_step"])}

    def test_a_step_lasts_until_the_next_begins_and_has_the_hooks_in_between(self) -> None:
        cost = Cost()
        cost.hook_s += 100.0  # attaching, before the first step
        for step in range(101):
            cost.end_step(10.0 + step * 0.1)
            cost.hook_s += 0.002
            cost.hook_s += 0.001
            cost.drained(0.002)
        fields = cost.fields()
        assert fields["steps_measured"] == 100
        for name, milliseconds in (("step", 100), ("hook", 3), ("drain", 2)):
            assert fields[f"{name}_ms_p50"] == pytest.approx(milliseconds, rel=0.05)
            assert fields[f"{name}_ms_p95"] == pytest.approx(milliseconds, rel=0.05)
        assert fields["share_of_step"] == pytest.approx((100 * 0.003 + 101 * 0.002) / 10.0, abs=1e-6)

    def test_a_step_that_does_not_count_is_left_out(self) -> None:
        cost = Cost()
        for now, counts in ((1.0, True), (2.0, True), (9.0, False), (10.0, True)):
            cost.end_step(now, counts=counts)
            cost.hook_s += 7.0 if now == 2.0 else 0.1
        cost.finish(60.0, counts=False)
        fields = cost.fields()
        assert fields["steps_measured"] == 2
        assert fields["share_of_step"] == pytest.approx(0.1)
        assert cost.step_times()["step_times_ms"] == [1000.0, 1000.0]

    def test_a_rare_slow_step_shows_in_the_95th_percentile_alone(self) -> None:
        cost = Cost()
        now = 0.0
        for step in range(1000):
            cost.end_step(now)
            cost.hook_s += 0.5 if step % 10 == 0 else 0.001
            now += 1.0
        fields = cost.fields()
        assert fields["hook_ms_p50"] == pytest.approx(1, rel=0.05)
        assert fields["hook_ms_p95"] == pytest.approx(500, rel=0.05)

    def test_memory_does_not_grow_with_steps(self) -> None:
        cost = Cost()

        def steps(count: int) -> int:
            for step in range(count):
                cost.end_step(step * 0.37 + step % 7)
                cost.hook_s += 1e-6 * (step % 1000)
                cost.drained(1e-5 * (step % 100))
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            before = steps(2_000)
            assert steps(20_000) - before < 2_000
        finally:
            tracemalloc.stop()
