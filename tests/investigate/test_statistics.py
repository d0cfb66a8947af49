"""Medians of few repetitions: the interval's coverage by exact probabilities, and no interval of too few values."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.investigate.statistics import (
    CONFIDENCE,
    LEAST,
    Sample,
    interval_ranks,
    median_interval,
    paired,
)

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def coverage(count: int, rank: int) -> Fraction:
    """How likely the k-th smallest and largest of `count` values enclose the median: of all ways to lie below it."""
    good = sum(math.comb(count, below) for below in range(rank, count - rank + 1))
    return Fraction(good, 2**count)


class TestInterval:
    @given(st.integers(0, 400))
    def test_it_covers_the_median_often_enough_and_no_narrower_one_does(self, count: int) -> None:
        found = interval_ranks(count)
        if found is None:
            assert count < LEAST
            assert all(coverage(count, rank) < CONFIDENCE for rank in range(1, count // 2 + 1))
            return
        rank, confidence = found
        assert confidence == float(coverage(count, rank))
        assert coverage(count, rank) >= Fraction(95, 100)
        assert rank == count // 2 or coverage(count, rank + 1) < Fraction(95, 100)

    def test_by_counting_all_signs_of_six_and_nine_values(self) -> None:
        for count in (6, 9):
            found = interval_ranks(count)
            assert found is not None
            rank, confidence = found
            enclosed = 0
            for below in itertools.product((True, False), repeat=count):
                enclosed += rank <= sum(below) <= count - rank
            assert confidence == enclosed / 2**count

    def test_six_values_are_the_fewest_and_their_ends_are_it(self) -> None:
        assert median_interval([5.0, 1, 2, 3, 4]) is None
        found = median_interval([6.0, 1, 5, 2, 4, 3])
        assert found is not None
        assert (found.low, found.high, found.confidence) == (1, 6, 0.96875)

    @given(NUMBERS)
    def test_it_holds_the_median_and_does_not_depend_on_the_order(self, values: list[float]) -> None:
        sample = Sample(tuple(values))
        found = sample.interval
        assert found == Sample(tuple(sorted(values))).interval
        assert (found is None) == (len(values) < LEAST)
        if found is not None and sample.median is not None:
            assert min(values) <= found.low <= sample.median <= found.high <= max(values)


class TestWords:
    def test_of_too_few_the_values_are_listed(self) -> None:
        def write(value: float) -> str:
            return f"{value:g} s"

        assert Sample(()).describe(write) == "no value"
        assert Sample((2.0,)).describe(write) == "2 s"
        assert Sample((2.0, 4.0)).describe(write) == "3 s (of 2 s, 4 s)"
        assert Sample((1.0, 2, 3, 4, 5, 6)).describe(write) == "3.5 s (1 s to 6 s, 96.9%)"


class TestPairs:
    @given(
        st.dictionaries(st.integers(1, 20), st.integers(-99, 99)), st.dictionaries(st.integers(1, 20), st.integers())
    )
    def test_differences_are_of_repetitions_that_both_have(self, first: dict[int, int], second: dict[int, int]) -> None:
        both = paired(first, second)
        assert list(both.repetitions) == sorted(first.keys() & second.keys())
        assert both.differences.values == tuple(second[key] - first[key] for key in both.repetitions)
        assert both.increases + both.decreases <= len(both.repetitions)

    def test_what_differs_by_little_beside_much_is_still_seen_pair_by_pair(self) -> None:
        first = {key: float(key * 100) for key in range(1, 7)}
        second = {key: value + 1 for key, value in first.items()}
        found = paired(first, second)
        assert found.first.interval is not None
        interval = found.differences.interval
        assert interval is not None
        assert (interval.low, interval.high, interval.excludes_zero) == (1, 1, True)
