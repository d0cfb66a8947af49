"""The token bucket never lets more through than its rate and its size allow, and never less than it can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.numerics.profile.escalation.rate import TokenBucket


@given(st.floats(0.01, 500), st.lists(st.integers(0, 3_000_000_000), min_size=1, max_size=200))
def test_no_stretch_of_time_has_more_than_the_rate_allows(rate: float, gaps: list[int]) -> None:
    bucket, now, taken = TokenBucket(rate), 0, []
    for gap in gaps:
        now += gap
        if bucket.take(now):
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            allowed = max(1.0, rate) + rate * (taken[last] - taken[first]) / 1e9
            assert last - first + 1 <= allowed + 1e-6


def test_a_fraction_of_one_a_second_is_one_in_its_inverse() -> None:
    bucket = TokenBucket(0.5)
    taken = [second for second in range(10) if bucket.take(second * 1_000_000_000)]
    assert taken == [0, 2, 4, 6, 8]


def test_a_burst_is_as_large_as_a_second_allows() -> None:
    bucket = TokenBucket(100)
    assert sum(bucket.take(5) for _ in range(1000)) == 100
