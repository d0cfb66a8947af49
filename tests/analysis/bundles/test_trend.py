"""Slopes over steps, and whether they are told from chance."""

from __future__ import annotations

import random

import pytest

from aorta_collectors.analysis.bundles.trend import trend


def test_a_line_has_its_slope_and_no_width() -> None:
    found = trend(range(2, 12), [7.0 + 3 * x for x in range(2, 12)])
    assert found is not None
    assert (found.slope, found.low, found.high, found.points, found.grows) == (3.0, 3.0, 3.0, 10, True)


def test_a_single_leap_is_no_trend() -> None:
    found = trend(range(30), [0.0] * 15 + [0.0] * 14 + [1e6])
    assert found is not None
    assert (found.slope, found.grows) == (0.0, False)


def test_what_grows_by_leaps_has_a_trend() -> None:
    found = trend(range(30), [float(x // 5) for x in range(30)])
    assert found is not None
    assert found.grows
    assert found.slope == pytest.approx(0.2, rel=0.2)


def test_few_points_have_no_interval() -> None:
    found = trend([1, 2, 3, 4], [1, 2, 3, 4])
    assert found is not None
    assert (found.slope, found.low, found.high, found.grows) == (1.0, None, None, False)
    assert trend([1], [1]) is None


def test_the_interval_holds_the_true_slope_about_as_often_as_it_says() -> None:
    drawn = random.Random(7)
    held = growing = 0
    for _ in range(400):
        flat = trend(range(20), [drawn.gauss(0, 1) for _ in range(20)])
        assert flat is not None
        assert flat.low is not None
        assert flat.high is not None
        held += flat.low <= 0 <= flat.high
        growing += flat.grows
    assert held > 400 * 0.92
    assert growing < 400 * 0.05


@pytest.mark.parametrize("count", [5, 6, 9, 20, 31])
def test_the_interval_is_the_same_upside_down(count: int) -> None:
    drawn = random.Random(count)
    y = [drawn.gauss(0, 1) for _ in range(count)]
    up, down = trend(range(count), y), trend(range(count), [-value for value in y])
    assert up is not None
    assert down is not None
    assert up.low is not None
    assert (down.low, down.high) == (-(up.high or 0.0), -up.low)


def test_very_many_points_are_thinned_out() -> None:
    found = trend(range(5000), [2.0 * x for x in range(5000)])
    assert found is not None
    assert (found.slope, found.points) == (2.0, 5000)
