"""Tensors of every dtype, shape and layout for property tests, with limits near their values."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import torch
from hypothesis import strategies as st

from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.reduce import Stats
from aorta_collectors.observe.sums import Sums

FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, *FLOAT8)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
INTEGERS = (*SIGNED, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128, torch.complex32)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)

#: How far the sums of a kernel may be off, of the sum of the squares or the magnitudes.
SLACK = 2e-6
#: Magnitudes below it may be lost in a sum of squares of float64.
LOST = 1e-154

_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# In and out of the range of each dtype, and between its values: 0.1 and 1e10 + 1 have no float32, 2**53 + 1 no float64.
_EVERYDAY = (0.0, 0.1, 1.0, 2.5, 3.0, 126.99, 127.0, 448.0, 448.5, 65504.0, 65505.0, 1e10, 1e10 + 1, 3.4e38, 3.5e38)
_EXTREMES = (float(2**53), float(2**63), float(2**64), 1e-45, 5e-324, 6e-8, 2.0**-9, 1e300, sys.float_info.max)
_MAGNITUDES = st.sampled_from([*_EVERYDAY, *_EXTREMES]) | st.floats(min_value=1e-30, max_value=1e30)
_ENDS = st.sampled_from([math.inf, -math.inf]) | _MAGNITUDES | _MAGNITUDES.map(lambda value: -value)


def elements(tensor: torch.Tensor) -> list[Any]:
    """The elements as exact Python numbers in row-major order, real and imaginary parts for a complex tensor."""
    flat = tensor.detach().flatten()
    if tensor.is_complex():
        wide = flat.to(torch.complex128).tolist()
        return [part for value in wide for part in (value.real, value.imag)]
    if tensor.is_floating_point():
        return flat.double().tolist()
    return [int(value) for value in flat.tolist()]


def exact_sums(tensor: torch.Tensor) -> Sums:
    """Rounded once each; Inf beyond the largest float64."""
    finite = [Fraction(value) for value in elements(tensor) if math.isfinite(value)]
    return Sums(_rounded(sum(finite, Fraction())), _rounded(sum((value * value for value in finite), Fraction())))


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def close(found: Stats, expected: Stats, slack: float = SLACK) -> bool:
    """Whether sums are as close as is promised; the sum of the magnitudes is not above sqrt(numel * squares)."""
    assert found.moments is not None
    assert expected.moments is not None
    total, squares = expected.moments
    if not math.isfinite(squares):
        return found.moments.squares == squares  # and of such numbers the sum may be anything
    magnitudes = math.sqrt(expected.numel) * math.sqrt(squares) + LOST * expected.numel
    return (
        abs(found.moments.squares - squares) <= slack * squares + 2 * LOST**2 * expected.numel
        and abs(found.moments.total - total) <= slack * magnitudes
    )


def shape_as_read(tensor: torch.Tensor) -> tuple[int, ...]:
    return (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype) -> tuple[torch.Tensor, Limits]:
    """A tensor of `dtype` with 0 to 4 dimensions in some layout, and limits near some of its values."""
    limits = draw(
        st.builds(Limits, _MAGNITUDES | st.just(math.inf), st.just(-math.inf) | _ENDS, st.just(math.inf) | _ENDS)
    )
    shape = draw(st.lists(st.integers(1, 3), max_size=4))
    count = math.prod(shape)
    value = _values(dtype, [end for end in (limits.huge, -limits.huge, *limits[1:]) if math.isfinite(end)])
    flat = draw(st.lists(value, min_size=count, max_size=count))
    if dtype in COMPLEX:
        other = draw(st.lists(value, min_size=count, max_size=count))
        wide = torch.complex(torch.tensor(flat, dtype=torch.float64), torch.tensor(other, dtype=torch.float64))
        tensor = wide.to(dtype)
    elif dtype in FLOATS:
        tensor = torch.tensor(flat, dtype=torch.float64).to(dtype)
    else:
        tensor = torch.tensor(flat, dtype=dtype)
    return draw(_layouts(tensor.reshape(shape))), limits


def _values(dtype: torch.dtype, limits: list[float]) -> st.SearchStrategy[Any]:
    """Any value of the dtype; often a special one, or a neighbour of a limit."""
    if dtype is torch.bool:
        return st.booleans()
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        near = [v for v in (math.floor(limit) + d for limit in limits for d in (-1, 0, 1)) if info.min <= v <= info.max]
        return st.sampled_from([*near, info.min, info.max, 0]) | st.integers(info.min, info.max)
    part = _PARTS.get(dtype, dtype)
    close = [value for limit in limits for value in around(limit, part)]
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, torch.finfo(part).max, torch.finfo(part).tiny]
    subnormal = st.floats(0.0, float(torch.finfo(part).tiny))
    return st.sampled_from([*special, *close]) | subnormal | st.floats(allow_nan=True, allow_infinity=True)


def around(limit: float, dtype: torch.dtype) -> list[float]:
    """A limit as the dtype rounds it, and its neighbours there: where an inexact comparison goes wrong."""
    rounded = torch.tensor([limit], dtype=torch.float64).to(dtype)
    bits = rounded.view(_BITS[dtype.itemsize])
    return [step.view(dtype).double().item() for step in (bits, bits + 1, bits - 1)]


@st.composite
def _layouts(draw: st.DrawFn, tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as it is, or as a view of its memory, or with a lazy sign or conjugate."""
    kind = draw(st.sampled_from(["as it is", "permuted", "strided", "expanded", "requires grad", "lazy"]))
    if kind == "permuted":
        return tensor.permute(*draw(st.permutations(range(tensor.dim())))) if tensor.dim() else tensor
    if kind == "strided" and tensor.dim():
        return tensor[..., draw(st.integers(0, tensor.shape[-1] - 1)) :: 2]
    if kind == "expanded":
        return tensor.expand(2, *tensor.shape)
    if kind == "requires grad" and (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.detach().requires_grad_()
    if kind == "lazy" and tensor.is_complex():
        # torch itself cannot resolve the sign of a complex32.
        signed = tensor.dtype is not torch.complex32 and draw(st.booleans())
        return torch._neg_view(tensor.conj()) if signed else tensor.conj()
    return tensor
