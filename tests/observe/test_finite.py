"""One sum tells whether all of a tensor is finite, of whatever dtype and layout; large numbers alone are not bad."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aorta_collectors.observe.finite import found_finite, found_finite_to
from aorta_collectors.observe.tensor_stats import values_of

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2)
BAD = (math.nan, math.inf, -math.inf)


def asked(tensor: Tensor) -> bool:
    values, reason = values_of(tensor)
    assert values is not None, reason
    by_ends = found_finite_to(values)
    if by_ends is not None and by_ends.peak is not None:
        assert by_ends.peak == values.double().abs().max().item()
    by_sum = found_finite(values)
    assert by_sum is None or by_ends is not None
    if by_sum is None and by_ends is not None:
        assert values.dtype is torch.float64  # whose sum runs over
    return by_sum is not None


@given(
    dtype=st.sampled_from(FLOATS),
    numel=st.integers(1, 5000),
    at=st.integers(0, 4999),
    bad=st.sampled_from(BAD),
    layout=st.sampled_from(("whole", "transposed", "every other", "with gaps", "expanded")),
)
def test_a_single_bad_element_is_found_wherever_it_is(
    dtype: torch.dtype, numel: int, at: int, bad: float, layout: str
) -> None:
    rows, columns = max(1, numel // 7), min(numel, 7)
    tensor = torch.linspace(-3, 3, rows * columns).view(rows, columns)
    if layout == "transposed":
        tensor = tensor.t()
    elif layout == "every other":
        tensor = torch.stack([tensor, torch.full_like(tensor, math.nan)], -1)[..., 0]
    elif layout == "with gaps":
        tensor = torch.nn.functional.pad(tensor, (0, 3), value=math.inf)[:, :columns]
    elif layout == "expanded":
        tensor = tensor.unsqueeze(1).expand(-1, 3, -1)
    # The view's own memory, so that what lies in its gaps stays where it is.
    tensor = tensor.to(dtype) if dtype is torch.float32 or layout in ("whole", "transposed") else tensor
    assert asked(tensor)
    place = at % rows, *((0,) if layout == "expanded" else ()), at % columns
    spoilt = tensor.t() if layout == "transposed" else tensor
    if not tensor.dtype.is_floating_point or tensor.dtype is torch.float8_e5m2:
        wide = spoilt.float()
        wide[place] = bad
        spoilt = wide.to(tensor.dtype)
    else:
        spoilt[place] = bad
    assert not asked(spoilt)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sign", [1, -1])
def test_finite_numbers_whose_sum_runs_over_are_finite(dtype: torch.dtype, sign: int) -> None:
    tensor = torch.full((100, 30), sign * torch.finfo(dtype).max, dtype=dtype)
    assert not math.isfinite(tensor.sum().item())
    assert asked(tensor)
    assert asked(tensor.t()[::2])
    tensor[99, 29] = -sign * math.inf
    assert not asked(tensor)


def test_of_float64_they_are_a_suspicion() -> None:
    tensor = torch.full((100,), 1e308, dtype=torch.float64)
    assert not asked(tensor)
    assert asked(tensor / 1000)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.uint64, torch.bool, torch.uint16])
def test_integers_are(dtype: torch.dtype) -> None:
    assert asked(torch.ones(7, dtype=dtype))


@pytest.mark.parametrize("bad", BAD)
def test_of_a_complex_number_both_parts_are_asked(bad: float) -> None:
    tensor = torch.ones(3, 5, dtype=torch.complex64)
    assert asked(tensor)
    assert asked(tensor.conj())
    for number in (complex(1, bad), complex(bad, 1)):
        tensor[2, 3] = number
        assert not asked(tensor)
