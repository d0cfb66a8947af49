"""Limits held against all values of small dtypes, and against neighbours in the larger ones."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.precision import headroom, huge_limit, inner_range
from tests.observe.numbers import FLOAT8, around

ENDS = st.floats(allow_nan=False) | st.floats(-1e5, 1e5) | st.floats(-1e-4, 1e-4)


def all_values(dtype: torch.dtype) -> list[float]:
    """Every value that a dtype of one or two bytes can hold, as Python numbers."""
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return list(range(info.min, info.max + 1))
    bits = torch.arange(2**16).to(torch.uint16) if dtype.itemsize == 2 else torch.arange(2**8).to(torch.uint8)
    return [value for value in bits.view(dtype).double().tolist() if math.isfinite(value)]


class TestInnerRange:
    @pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float16], ids=str)
    def test_its_ends_are_the_outermost_values_of_the_dtype_in_the_range(self, dtype: torch.dtype) -> None:
        values = sorted(all_values(dtype))

        @settings(max_examples=50, deadline=None, derandomize=True)
        @given(ENDS, ENDS)
        def check(low: float, high: float) -> None:
            ends = inner_range(dtype, low, high)
            inside = [value for value in values if low <= value <= high]
            if ends is None:
                assert not inside
            else:
                assert [value for value in values if ends[0] <= value <= ends[1]] == inside
                assert all(math.isinf(end) or end in values for end in ends)

        check()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_an_end_is_a_value_of_the_dtype_whose_neighbour_is_outside(self, dtype: torch.dtype) -> None:
        @settings(max_examples=200, deadline=None, derandomize=True)
        @given(ENDS)
        def check(end: float) -> None:
            ends = inner_range(dtype, end, end)
            assert ends is not None
            above, below = ends
            assert below <= end <= above
            for exact in ends:
                assert torch.tensor(exact, dtype=dtype).double().item() == exact
            assert not any(below < value < above for value in around(end, dtype) if value != end)

        check()

    def test_float64_holds_every_end(self) -> None:
        assert inner_range(torch.float64, 5e-324, 0.1) == (5e-324, 0.1)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
    def test_infinite_ends_stay_so(self, dtype: torch.dtype) -> None:
        assert inner_range(dtype, -math.inf, math.inf) == (-math.inf, math.inf)

    def test_ends_beyond_the_dtype_are_its_largest_value_or_exclude_all(self) -> None:
        assert inner_range(torch.float16, -1e300, 1e300) == (-65504.0, 65504.0)
        assert inner_range(torch.float16, 1e300, math.inf) == (math.inf, math.inf)
        assert inner_range(torch.int8, -1e300, math.inf) == (-128, 127)


class TestHeadroom:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex32, *FLOAT8], ids=str)
    def test_it_counts_the_doublings_to_the_largest_value(self, dtype: torch.dtype) -> None:
        largest = torch.finfo(dtype).max
        assert headroom(dtype, largest) == 0.0
        assert headroom(dtype, largest / 8) == 3.0

    def test_a_half_at_its_largest_power_of_two_has_less_than_one_bit_left(self) -> None:
        assert headroom(torch.float16, 32768.0) == math.log2(65504 / 32768)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.bool, torch.complex64], ids=str)
    def test_other_dtypes_have_none(self, dtype: torch.dtype) -> None:
        assert headroom(dtype, 1.0) is None

    @pytest.mark.parametrize("magnitude", [None, 0.0])
    def test_where_nothing_but_zero_is_finite_there_is_none(self, magnitude: float | None) -> None:
        assert headroom(torch.float16, magnitude) is None


class TestHugeLimit:
    def test_without_headroom_it_is_the_threshold(self) -> None:
        assert huge_limit(torch.float16, 1e10, None) == 1e10

    def test_a_narrow_dtype_is_huge_at_its_own_scale(self) -> None:
        assert huge_limit(torch.float16, 1e10, 3.0) == 65504 / 8
        assert huge_limit(torch.complex32, 1e10, 3.0) == 65504 / 8

    def test_the_threshold_holds_where_it_is_the_smaller_one(self) -> None:
        assert huge_limit(torch.bfloat16, 1e10, 3.0) == 1e10
        assert huge_limit(torch.float16, 10.0, 3.0) == 10.0

    @pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float4_e2m1fn_x2], ids=str)
    def test_integers_and_packed_dtypes_have_the_threshold_alone(self, dtype: torch.dtype) -> None:
        assert huge_limit(dtype, 1e10, 3.0) == 1e10

    @given(st.floats(allow_nan=False))
    @settings(max_examples=50, deadline=None, derandomize=True)
    def test_any_number_of_bits_is_taken(self, bits: float) -> None:
        assert 0.0 <= huge_limit(torch.float16, 1e10, bits) <= 65504.0
