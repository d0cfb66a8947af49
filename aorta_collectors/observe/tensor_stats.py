"""Whether a tensor's numbers are sane: their range, mean and spread, and how many are NaN, Inf, zero or saturated."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.precision import inner_range, is_float8
from aorta_collectors.observe.readable import is_plain, plain_values

_NUMBERS = 9  # of a row; see stats_later
_AT_ONCE = 1 << 22  # elements that are held as float64 at a time, on a device


class Ends(NamedTuple):
    """Where saturation begins, inclusive, in the tensor's unit. Infinite where there is none on a side."""

    low: float
    high: float

    def within(self, dtype: torch.dtype) -> Ends:
        """The same for elements of a floating dtype, as numbers that it holds: a comparison rounds any other."""
        low, high = inner_range(dtype, -math.inf, self.low), inner_range(dtype, self.high, math.inf)
        assert low is not None
        assert high is not None
        return Ends(low[1], high[0])


class TensorStats(NamedTuple):
    """Of all elements that are read; a complex one is two. Range, mean and spread are of the finite ones.

    Attributes:
        saturated_count: Elements at or beyond one of the ends that were given, Inf included, NaN not.
        finite_min, finite_max, mean, std: None where no element is finite. The standard deviation is that of the
            population, 0 exactly where all finite elements are equal.
    """

    numel: int
    nan_count: int
    inf_count: int
    posinf_count: int
    zero_count: int
    saturated_count: int
    finite_min: float | None
    finite_max: float | None
    mean: float | None
    std: float | None

    @property
    def zero_fraction(self) -> float | None:
        return self.zero_count / self.numel if self.numel else None

    @property
    def saturated_fraction(self) -> float | None:
        return self.saturated_count / self.numel if self.numel else None

    @property
    def finite_abs_max(self) -> float | None:
        if self.finite_min is None or self.finite_max is None:
            return None
        return max(abs(self.finite_min), abs(self.finite_max))

    @property
    def is_finite(self) -> bool:
        return not (self.nan_count or self.inf_count)

    @property
    def only_negative_infinite(self) -> bool:
        """Whether all that is not finite is -Inf, and something is: what an additive mask looks like."""
        return self.inf_count > 0 and self.nan_count == 0 and self.posinf_count == 0


#: Of a tensor without elements.
NOTHING = TensorStats(0, 0, 0, 0, 0, 0, None, None, None, None)


def values_of(tensor: Tensor) -> tuple[Tensor | None, str]:
    """What there is to read of `tensor`, as `plain_values` tells it, sooner for the most common tensors."""
    if is_plain(tensor):
        return (tensor.detach() if tensor.requires_grad else tensor), ""
    return plain_values(tensor)


@functools.cache
def ends_of(dtype: torch.dtype) -> Ends | None:
    """The ends of what a dtype can hold. None for bool and packed dtypes; 0 is no end of unsigned integers."""
    if dtype is torch.bool:
        return None
    try:
        if dtype.is_floating_point or dtype.is_complex:
            largest = torch.finfo(dtype).max
            return Ends(-largest, largest)
        info = torch.iinfo(dtype)
    except (NotImplementedError, TypeError):
        return None
    return Ends(float(info.min) if info.min < 0 else -math.inf, float(info.max))


def stats_later(values: Tensor, ends: Ends | None) -> Tensor:
    """Queue the reduction of `values` on their device, with plain operations of torch, without waiting for it.

    Args:
        values: As `plain_values` gives them.
        ends: Beyond which elements count as saturated; None for nowhere.

    Returns:
        float64 of shape (9,) on the device, for `decoded`: NaN, +Inf, finite, zero and saturated elements, smallest
        and largest finite one, mean, mean square of the distances from it. It keeps nothing of the tensor alive.
    """
    dtype = values.dtype
    if is_float8(dtype):
        values = values.float()  # torch has no reductions for them
    elif not dtype.is_floating_point:
        values = values.double()
    finite = torch.isfinite(values)
    count = finite.sum()
    saturated = torch.zeros_like(count)
    if ends is not None:
        ends = ends.within(values.dtype)
        for is_beyond in (values <= ends.low, values >= ends.high):
            saturated = saturated + is_beyond.sum()
    low = torch.where(finite, values, math.inf).amin()
    high = torch.where(finite, values, -math.inf).amax()
    mean = torch.where(finite, values, 0.0).sum(dtype=torch.float64) / count
    squares, off = torch.zeros_like(mean), torch.zeros_like(mean)
    parts = [torch.split(whole.reshape(-1), _AT_ONCE) for whole in (values, finite)]
    for part, is_finite in zip(*parts, strict=True):
        distances = torch.where(is_finite, part.double() - mean, 0.0)
        squares, off = squares + distances.square().sum(), off + distances.sum()
    off = off / count  # by which the mean was rounded
    counts = [torch.isnan(values).sum(), torch.isposinf(values).sum(), count, (values == 0).sum(), saturated]
    return torch.stack([number.double() for number in [*counts, low, high, mean + off, squares / count - off * off]])


def decoded(numel: int, row: list[float]) -> TensorStats:
    """What the numbers of a row of `stats_later` say of a tensor of `numel` elements."""
    nans, posinfs, finite, zeros, saturated = (int(number) for number in row[:5])
    low, high, mean, square = row[5:_NUMBERS]
    counts = (numel, nans, numel - finite - nans, posinfs, zeros, saturated)
    if not finite:
        return TensorStats(*counts, None, None, None, None)
    if low == high:
        return TensorStats(*counts, low, high, low, 0.0)
    # Of float64 near its ends the sums run over.
    known = math.isfinite(mean) and math.isfinite(square)
    return TensorStats(*counts, low, high, mean if known else None, math.sqrt(max(0.0, square)) if known else None)


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    """Such as bfloat16."""
    return str(dtype).removeprefix("torch.")
