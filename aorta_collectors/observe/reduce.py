"""What one tensor looked like: counts of bad elements, where they are, and the finite range; one pass when it is clean.

A reduction is over all elements of the values that `plain_values` reads. Units are those of the tensor. Values:

* NaN and Inf are counted and left out of the finite range;
* "huge" counts finite elements with |x| > limits.huge, "oob" finite elements outside [limits.low, limits.high];
  both compare exactly, whatever the dtype. An element may be both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.precision import inner_range, is_float8
from aorta_collectors.observe.sums import Sums, sums_later, sums_now

_LARGEST = torch.finfo(torch.float64).max
_LOCATED = 12  # numbers from which on a row of a reduction tells a location
_SUMMED_ROWS = (9, 14)  # numbers of a row that ends with the two sums, without and with location
_MIDDLE = 2**63  # of the uint64 range
# Of these, BLAS sums squares at twice the speed of aminmax; on fewer elements a call costs more than the pass.
_SUMMED = (torch.float32, torch.float64)
# aminmax takes threads from the same number on.
_SUMMED_FROM = 32768
_SQUARE_ROUNDED = 1 - 2.0**-6  # far more than a rounded square can lose
_SMALLEST_REACH = 1e-18  # whose square float32 still holds in full


class Location(NamedTuple):
    """Where the bad elements of a tensor are.

    Attributes:
        bad_rows: Rows along dim 0 that hold a bad element. A 0-dim tensor is one row, and each element of a 1-dim one.
        flat_index: Of the first bad element in row-major order of the values as read. None, like all that follows, if
            there is none.
        row, column: The same place in the values reshaped to (shape[0], -1); of 0-dim and 1-dim ones, row 0.
        value: That element; may be NaN or Inf. Integers beyond 2**53 are rounded.
    """

    bad_rows: int
    flat_index: int | None
    row: int | None
    column: int | None
    value: float | None


class Stats(NamedTuple):
    """Counts, finite range and sums of one tensor.

    The range is None where no element is finite, or nobody asked for it; the sums only where nobody asked.
    """

    numel: int
    nan_count: int
    inf_count: int
    huge_count: int
    finite_count: int
    finite_min: float | None
    finite_max: float | None
    posinf_count: int = 0
    oob_count: int = 0
    location: Location | None = None
    moments: Sums | None = None

    @property
    def finite_mean(self) -> float | None:
        """Mean of the finite elements; None where there are none, or the sum is beyond the largest float64."""
        return _quotient(self.moments.total, self.finite_count) if self.moments is not None else None

    @property
    def finite_rms(self) -> float | None:
        """Root of the mean of their squares; None likewise."""
        square = _quotient(self.moments.squares, self.finite_count) if self.moments is not None else None
        return math.sqrt(square) if square is not None else None

    @property
    def finite_abs_max(self) -> float | None:
        if self.finite_min is None or self.finite_max is None:
            return None
        return max(abs(self.finite_min), abs(self.finite_max))

    @property
    def bad(self) -> bool:
        return bool(self.nan_count or self.inf_count or self.huge_count or self.oob_count)

    @property
    def kind(self) -> str | None:
        """The worst that is in the tensor: "nan", "inf", "huge" or "oob"; None for a clean one."""
        if self.nan_count:
            return "nan"
        if self.inf_count:
            return "inf"
        if self.huge_count:
            return "huge"
        return "oob" if self.oob_count else None

    @property
    def only_negative_infinite(self) -> bool:
        """Whether all that is not finite is -Inf, and something is: what an additive mask looks like."""
        return self.inf_count > 0 and self.nan_count == 0 and self.posinf_count == 0

    @classmethod
    def clean(cls, numel: int, low: float | None, high: float | None) -> Stats:
        """Of a tensor without a bad element; the range is None where it was not asked for."""
        if low is None or high is None:
            return cls(numel, 0, 0, 0, numel, None, None)
        return cls(numel, 0, 0, 0, numel, float(low), float(high))


class CleanRange(NamedTuple):
    """What proves in one pass that a tensor has no bad element; made once for each `Limits`.

    Attributes:
        low, high: A lowest and a highest element within these, neither of them NaN.
        squares: A sum of squares below it. A sum of squares in floating point is never below its largest term,
            since rounding keeps the order; it is NaN or Inf where an element is.
    """

    low: float
    high: float
    squares: float

    @classmethod
    def of(cls, limits: Limits) -> CleanRange:
        huge = min(limits.huge, _LARGEST)
        low, high = max(-huge, limits.low), min(huge, limits.high)
        reach = min(-low, high)
        return cls(low, high, reach * reach * _SQUARE_ROUNDED if reach >= _SMALLEST_REACH else 0.0)


def reduce_now(
    tensor: Tensor, limits: Limits, locate: bool = False, clean: CleanRange | None = None, ranged: bool = True
) -> tuple[float | None, float | None, Stats | None]:
    """Reduce values in host memory at once.

    A clean tensor costs one pass: aminmax lets a NaN through, so both ends within all limits prove that no element is
    bad. Only then are counts computed, in a few more passes. Where the range is not wanted, a sum of squares proves the
    same of most tensors in half the time.

    Args:
        clean: Of `limits`.
        ranged: Whether the range of a clean tensor is wanted.

    Returns:
        (lowest, highest, None) for a clean tensor, located or not, else (0.0, 0.0, stats). The two are None where
        nobody wants them and they were not found by the way.
    """
    low_allowed, high_allowed, squares = clean or CleanRange.of(limits)
    dtype = tensor.dtype
    if not ranged and tensor.numel() >= _SUMMED_FROM and dtype in _SUMMED and tensor.is_contiguous():
        flat = tensor.view(-1)
        if torch.dot(flat, flat).item() < squares:
            return None, None, None
    unsigned = dtype is torch.uint64
    low_tensor, high_tensor = torch.aminmax(_shifted(tensor) if unsigned else tensor)
    low, high = low_tensor.item(), high_tensor.item()
    if unsigned:
        low, high = low + _MIDDLE, high + _MIDDLE
    if low_allowed <= low and high <= high_allowed:
        return low, high, None
    return 0.0, 0.0, read_rows([(tensor.numel(), reduce_later(tensor, limits, locate))])[0]


def reduce_now_with_moments(
    tensor: Tensor, limits: Limits, locate: bool, clean: CleanRange, ranged: bool
) -> tuple[float | None, float | None, Stats | None]:
    """The same with sums, and so with Stats of a clean tensor too, which then costs further passes.

    A clean tensor whose range is not wanted goes without: no record of it is written.
    """
    low, high, stats = reduce_now(tensor, limits, locate, clean, ranged)
    if stats is None and not ranged:
        return low, high, None
    stats = Stats.clean(tensor.numel(), low, high) if stats is None else stats
    return low, high, stats._replace(moments=sums_now(tensor))


def _shifted(tensor: Tensor) -> Tensor:
    """uint64 as int64, less 2**63: in the same order, and torch has reductions for it."""
    return tensor.view(torch.int64) ^ -_MIDDLE


def reduce_later(tensor: Tensor, limits: Limits, locate: bool = False, moments: bool = False) -> Tensor:
    """Queue the reduction of values on their device, without waiting for it.

    Returns:
        float64 of shape (7,), or (12,) with `locate`, and two more with `moments`, on the tensor's device, for
        `read_rows`. It keeps nothing of the tensor alive.
    """
    given, dtype = tensor, tensor.dtype
    if is_float8(dtype):
        tensor, dtype = tensor.float(), torch.float32  # torch has no reductions for them
    if dtype is torch.uint64:
        tensor = _shifted(tensor)
    finite = torch.isfinite(tensor)
    huge = _outside(tensor, dtype, -limits.huge, limits.huge).logical_and_(finite)
    counts = [torch.isnan(tensor).sum(), torch.isposinf(tensor).sum(), finite.sum(), huge.sum()]
    bad = huge.logical_or_(~finite)
    if limits.bounded:
        oob = _outside(tensor, dtype, limits.low, limits.high).logical_and_(finite)
        counts.append(oob.sum())
        bad.logical_or_(oob)
    else:
        counts.append(torch.zeros_like(counts[0]))
    if dtype.is_floating_point:
        low = torch.where(finite, tensor, math.inf).amin()
        high = torch.where(finite, tensor, -math.inf).amax()
    else:
        low, high = torch.aminmax(tensor)
    values = [low, high]
    if locate:
        first = bad.reshape(-1).view(torch.uint8).argmax()
        rows, width = (tensor.shape[0], tensor.numel() // tensor.shape[0]) if tensor.dim() > 1 else (1, tensor.numel())
        bad_rows = bad.sum() if tensor.dim() < 2 else bad.reshape(rows, width).any(1).sum()
        counts += [bad_rows, first, first // width, first % width]
        values.append(torch.take(tensor, first))
    measured = torch.stack(values)
    if dtype is torch.uint64:
        measured = (measured ^ -_MIDDLE).view(torch.uint64)
    parts = [torch.stack(counts).to(torch.float64), measured.to(torch.float64)]
    return torch.cat([*parts, sums_later(given)] if moments else parts)


def _outside(tensor: Tensor, dtype: torch.dtype, low: float, high: float) -> Tensor:
    """Elementwise x < low or x > high, exact for finite x; a shifted tensor tells its own dtype."""
    ends = inner_range(dtype, low, high)
    if ends is None:
        return torch.ones_like(tensor, dtype=torch.bool)
    inner_low, inner_high = ends
    if dtype is torch.uint64:
        inner_low, inner_high = inner_low - _MIDDLE, inner_high - _MIDDLE
    return (tensor < inner_low).logical_or_(tensor > inner_high)


def read_rows(rows: list[tuple[int, Tensor]]) -> list[Stats]:
    """Bring rows of `reduce_later` to the host: one blocking copy per device, whatever the number and kind of rows.

    Args:
        rows: (numel, row) pairs. Rows with and without location and sums may be mixed.

    Returns:
        Their Stats in the same order. Where nothing is bad, the location of a row that has one is (0, None, ...).
    """
    by_device: dict[torch.device, list[int]] = {}
    for index, (_, row) in enumerate(rows):
        by_device.setdefault(row.device, []).append(index)
    stats: dict[int, Stats] = {}
    for indices in by_device.values():
        numbers = torch.cat([rows[index][1] for index in indices]).tolist()
        start = 0
        for index in indices:
            numel, row = rows[index]
            end = start + row.numel()
            stats[index] = decoded(numel, numbers[start:end])
            start = end
    return [stats[index] for index in range(len(rows))]


def decoded(numel: int, row: list[float]) -> Stats:
    """What the numbers of a row of `reduce_later` say of a tensor of `numel` elements."""
    located = len(row) >= _LOCATED
    nans, posinfs, finite, huge, oob = (int(count) for count in row[:5])
    low, high = row[9:11] if located else row[5:7]
    location = None
    if located:
        bad_rows, first, line, column = (int(number) for number in row[5:9])
        location = Location(bad_rows, first, line, column, row[11]) if bad_rows else Location(0, None, None, None, None)
    return Stats(
        numel,
        nans,
        numel - finite - nans,
        huge,
        finite,
        low if finite else None,
        high if finite else None,
        posinfs,
        oob,
        location,
        Sums(*row[-2:]) if len(row) in _SUMMED_ROWS else None,
    )


def _quotient(total: float, count: int) -> float | None:
    return total / count if count and math.isfinite(total) else None
