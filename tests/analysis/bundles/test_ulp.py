"""Steps between floating-point numbers, against their definition: how many numbers of the dtype lie between two."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.bundles.ulp import FAR, distances

_SMALL = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz)


def _all_of(dtype: torch.dtype) -> torch.Tensor:
    """Every finite number of a small dtype, in order, 0 once."""
    bits = torch.finfo(dtype).bits
    integers = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1)).to(torch.int8 if bits == 8 else torch.int16)
    numbers = integers.view(dtype).to(torch.float64)
    return torch.unique(numbers[numbers.isfinite()]).to(dtype)


@pytest.mark.parametrize("dtype", _SMALL, ids=str)
def test_the_distance_counts_the_numbers_of_a_small_dtype_from_one_to_the_other(dtype: torch.dtype) -> None:
    numbers = _all_of(dtype)
    place = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))
    found = distances(numbers, numbers.view(torch.int8 if dtype.itemsize == 1 else torch.int16)[place].view(dtype))
    assert torch.equal(found, (place - torch.arange(len(numbers))).abs())


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 60))
def test_in_float64_as_many_steps_as_nextafter_takes(start: float, steps: int) -> None:
    end = start
    for _ in range(steps):
        end = math.nextafter(end, math.inf)
    expected = FAR if math.isinf(end) else steps
    found = distances(torch.tensor([start], dtype=torch.float64), torch.tensor([end], dtype=torch.float64))
    assert found.item() == expected


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_in_float32_distances_along_a_line_add_up(values: list[float]) -> None:
    low, middle, high = (torch.tensor([value]) for value in sorted(values))
    assert distances(low, high).item() == distances(low, middle).item() + distances(middle, high).item()
    assert torch.equal(distances(low, high), distances(high, low))


def test_zeros_infinities_and_nan() -> None:
    a = torch.tensor([0.0, math.inf, math.inf, math.inf, math.nan, math.nan, 5e-324], dtype=torch.float64)
    b = torch.tensor([-0.0, math.inf, -math.inf, 1.7976931348623157e308, math.nan, 1.0, -5e-324], dtype=torch.float64)
    assert distances(a, b).tolist() == [0, 0, FAR, FAR, FAR, FAR, 2]
    assert distances(a, b, equal_nan=True).tolist() == [0, 0, FAR, FAR, 0, FAR, 2]
    ends = torch.tensor([1.7976931348623157e308], dtype=torch.float64)
    assert distances(ends, -ends).item() == FAR, "more than can be told"
