"""How two tensors differ, element by element, against plain arithmetic and torch.testing.assert_close."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.bundles.criterion import BITWISE, ULP, Criterion
from aorta_collectors.analysis.bundles.difference import difference_of

_FLOAT = st.one_of(
    st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, 1.0000001, math.inf, -math.inf, math.nan, 1e-40])
)
_PAIRS = st.lists(st.tuples(_FLOAT, _FLOAT) | _FLOAT.map(lambda value: (value, value)), min_size=1, max_size=12)


@settings(deadline=None)
@given(_PAIRS, st.sampled_from([0.0, 1e-5, 0.1]), st.sampled_from([0.0, 1e-3, 1.0]), st.booleans())
def test_a_tolerance_is_asked_of_each_element(
    pairs: list[tuple[float, float]], rtol: float, atol: float, equal_nan: bool
) -> None:
    def passes(a: float, b: float) -> bool:
        if math.isnan(a) or math.isnan(b):
            return equal_nan and math.isnan(a) and math.isnan(b)
        return a == b or (math.isfinite(a) and math.isfinite(b) and abs(b - a) <= atol + rtol * abs(a))

    a, b = (torch.tensor(side) for side in zip(*pairs, strict=True))
    found = difference_of(a, b, Criterion(rtol=rtol, atol=atol, equal_nan=equal_nan))
    values = list(zip(a.tolist(), b.tolist(), strict=True))
    assert found.outside == sum(not passes(*pair) for pair in values)
    apart = [abs(right - left) for left, right in values if math.isfinite(left) and math.isfinite(right)]
    assert found.largest_absolute == (max(apart) if apart else None)
    relative = [abs(b - a) / abs(a) for a, b in values if math.isfinite(a) and math.isfinite(b) and a]
    assert found.largest.relative == (pytest.approx(max(relative)) if relative else None)
    assert found.nans == tuple(sum(math.isnan(pair[side]) for pair in values) for side in (0, 1))
    assert found.infs == tuple(sum(math.isinf(pair[side]) for pair in values) for side in (0, 1))
    if found.outside:
        assert found.index is not None
        assert not passes(*values[found.index[0]])


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64], ids=str
)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_default_tolerance_is_that_of_assert_close(dtype: torch.dtype, factor: float) -> None:
    rtol = {torch.float64: 1e-7, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}.get(dtype, 1.3e-6)
    a = torch.full((3,), 64.0, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    b = a.clone()
    b[1] *= 1 + factor * rtol
    a, b = a.to(dtype), b.to(dtype)
    if factor > 1:
        with pytest.raises(AssertionError):
            torch.testing.assert_close(b, a)
    else:
        torch.testing.assert_close(b, a)
    assert difference_of(a, b, Criterion()).outside == (1 if factor > 1 else 0)


@settings(deadline=None)
@given(
    st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=6),
    st.floats(1e-7, 1e-3),
    st.sampled_from([1e-12, 1e-6, 1.0, 1e6]),
)
def test_the_default_does_not_depend_on_the_unit_of_tensors_smaller_than_1(
    values: list[float], off: float, unit: float
) -> None:
    a = torch.tensor(values, dtype=torch.float64) * unit
    scale = min(1.0, float(a.abs().max()))
    b = a.clone()
    b[0] += off * (scale or 1e-9)
    allowed = 1e-7 * abs(float(a[0])) + 1e-7 * scale
    if abs(abs(float(b[0] - a[0])) - allowed) > 1e-6 * allowed:
        assert difference_of(a, b, Criterion()).outside == (abs(float(b[0] - a[0])) > allowed)


@pytest.mark.parametrize("magnitude", [1.0, 4e-6, 1e-9, 1e-30])
def test_another_sign_never_matches_however_small_the_tensor(magnitude: float) -> None:
    a = torch.tensor([1.0, -0.5, 0.0]) * magnitude
    assert difference_of(a, -a, Criterion()).outside == 2
    assert difference_of(a, a * (1 + 1e-7), Criterion()).outside == 0
    flipped = difference_of(a, -a, Criterion(atol=1e-5))
    assert (flipped.outside, flipped.below_atol) == ((2, False) if magnitude == 1 else (0, True))
    assert flipped.of_scale == pytest.approx(2)
    assert not difference_of(a, a, Criterion(atol=1e-5)).below_atol, "equal, whatever is allowed"


def test_the_scale_of_complex_numbers_and_of_what_is_not_finite() -> None:
    a = torch.tensor([3e-6 + 4e-6j, 0j])
    assert difference_of(a, a + 4e-11, Criterion()).scale == pytest.approx(5e-6)
    assert difference_of(a, a + 4e-11, Criterion()).outside == 0
    assert difference_of(a, a + 6e-11, Criterion()).outside == 2
    assert difference_of(torch.tensor([math.inf, 1e-6]), torch.tensor([math.inf, -1e-6]), Criterion()).outside == 1


def test_of_two_dtypes_the_lower_precision_counts() -> None:
    exact = torch.tensor([1.0, 2.0, 3.001])
    lower = exact.to(torch.bfloat16)
    assert difference_of(exact, lower, Criterion()).outside == 0
    assert difference_of(exact, lower, Criterion(ULP)).outside == 0, "3.001 is 3 in bfloat16"
    assert difference_of(exact, lower + 0.5, Criterion()).outside == 3


def test_bits_tell_zeros_and_kinds_of_nan_apart() -> None:
    a = torch.tensor([0.0, 1.0, math.nan])
    b = torch.tensor([-0.0, 1.0, math.nan])
    assert difference_of(a, b, Criterion(BITWISE)).outside == 1
    found = difference_of(a, b, Criterion(BITWISE))
    assert (found.index, found.baseline, found.candidate) == ((0,), 0.0, -0.0)
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert difference_of(a[2:], other, Criterion(BITWISE)).outside == 1
    assert difference_of(a[2:], other, Criterion(equal_nan=True)).outside == 0


def test_the_worst_place_is_one_that_is_finite_on_one_side_alone() -> None:
    a, b = torch.zeros(2, 3), torch.zeros(2, 3)
    b[0, 1], b[1, 2] = 7.0, math.nan
    found = difference_of(a, b, Criterion())
    assert (found.index, found.baseline, found.candidate) == ((1, 2), 0.0, "nan")
    assert (found.outside, found.largest_absolute) == (2, 7.0)


def test_how_far_apart_the_worst_elements_are_and_what_is_larger_elsewhere() -> None:
    a = torch.tensor([100.0, 1e-3, math.nan])
    b = torch.tensor([101.0, 2e-3, math.nan])
    found = difference_of(a, b, Criterion(equal_nan=True))
    assert found.index == (0,)
    assert (found.there.absolute, found.there.relative) == (1.0, pytest.approx(0.01))
    assert (found.largest.absolute, found.largest.relative) == (1.0, pytest.approx(1.0))
    assert found.there.ulps == 2**17
    assert found.largest.ulps == pytest.approx(2**23, rel=0.01)
    assert found.ulp_dtype == "float32"
    worse = difference_of(a, b, Criterion())
    assert (worse.index, worse.there.absolute, worse.largest.absolute) == ((2,), None, 1.0)
    lower = difference_of(torch.tensor([1.0, 0.0]), torch.tensor([1.5, 0.25]).to(torch.bfloat16), Criterion())
    assert (lower.there, lower.ulp_dtype) == ((0.5, 0.5, 64), "bfloat16")


def test_the_worst_place_is_among_those_that_do_not_pass() -> None:
    a = torch.tensor([1e6, 1.0])
    b = torch.tensor([1e6 + 1, 1.5])
    assert difference_of(a, b, Criterion()).index == (1,)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.uint8], ids=str)
def test_integers_are_compared_exactly(dtype: torch.dtype) -> None:
    a = torch.tensor([1, 0, 1]).to(dtype)
    b = torch.tensor([1, 1, 1]).to(dtype)
    found = difference_of(a, b, Criterion(rtol=10.0, atol=10.0))
    assert (found.outside, found.index, found.largest_absolute, found.largest.ulps) == (1, (1,), 1.0, None)


def test_large_integers_are_told_apart() -> None:
    a = torch.tensor([2**62, -(2**63)])
    found = difference_of(a, torch.tensor([2**62 + 1, 2**63 - 1]), Criterion())
    assert (found.outside, found.index, found.largest_absolute) == (2, (1,), 2.0**64)


@pytest.mark.parametrize(
    ("a", "b", "dtypes"),
    [
        (2**63, 2**63 + 1, (torch.uint64, torch.uint64)),
        (2**62, 2**62 + 1, (torch.int64, torch.uint64)),
        (-1, 2**64 - 1, (torch.int64, torch.uint64)),
    ],
)
def test_large_integers_are_told_apart_where_float64_does_not(
    a: int, b: int, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    sides = [torch.tensor([value], dtype=dtype) for value, dtype in zip((a, b), dtypes, strict=True)]
    for criterion in (Criterion(), Criterion(ULP, 5), Criterion(BITWISE)):
        assert difference_of(*sides, criterion).outside == 1


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_float8(dtype: torch.dtype) -> None:
    a = torch.tensor([1.0, 2.0]).to(dtype)
    b = torch.tensor([1.0, 4.0]).to(dtype)
    found = difference_of(a, b, Criterion(ULP, 3))
    assert (found.outside, found.largest.ulps) == (1, 2 ** (2 if dtype == torch.float8_e5m2 else 3))


def test_tensors_larger_than_what_is_looked_at_together() -> None:
    a = torch.zeros(1100, 1000)
    b = a.clone()
    b[1, 5], b[1099, 999] = 1.0, 2.0
    found = difference_of(a, b, Criterion())
    assert (found.outside, found.index, found.candidate, found.numel) == (2, (1099, 999), 2.0, 1_100_000)


def test_a_single_number_and_none() -> None:
    assert difference_of(torch.tensor(1.0), torch.tensor(2.0), Criterion()).index == ()
    empty = difference_of(torch.zeros(0, 4), torch.zeros(0, 4), Criterion())
    assert (empty.outside, empty.index, empty.part_outside) == (0, None, 0.0)
