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
from aorta_collectors.observe.precision import inner_range

_LARGEST = torch.finfo(torch.float64).max
_COUNTS = 7  # numbers in the row of a reduction without location
_MIDDLE = 2**63  # of the uint64 range


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
    """Counts and finite range of one tensor. The range is None where no element is finite."""

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
    def clean(cls, numel: int, low: float, high: float) -> Stats:
        return cls(numel, 0, 0, 0, numel, float(low), float(high))


def reduce_now(tensor: Tensor, limits: Limits, locate: bool = False) -> tuple[float, float, Stats | None]:
    """Reduce values in host memory at once.

    A clean tensor costs one pass: aminmax lets a NaN through, so both ends within all limits prove that no element is
    bad. Only then are counts computed, in a few more passes.

    Returns:
        (lowest, highest, None) for a clean tensor, located or not, else (0.0, 0.0, stats).
    """
    unsigned = tensor.dtype is torch.uint64
    low_tensor, high_tensor = torch.aminmax(_shifted(tensor) if unsigned else tensor)
    low, high = low_tensor.item(), high_tensor.item()
    if unsigned:
        low, high = low + _MIDDLE, high + _MIDDLE
    huge, allowed_low, allowed_high = limits
    if huge > _LARGEST:
        huge = _LARGEST
    if -huge <= low and high <= huge and allowed_low <= low and high <= allowed_high:
        return low, high, None
    return 0.0, 0.0, read_rows([(tensor.numel(), reduce_later(tensor, limits, locate))])[0]


def _shifted(tensor: Tensor) -> Tensor:
    """uint64 as int64, less 2**63: in the same order, and torch has reductions for it."""
    return tensor.view(torch.int64) ^ -_MIDDLE


def reduce_later(tensor: Tensor, limits: Limits, locate: bool = False) -> Tensor:
    """Queue the reduction of values on their device, without waiting for it.

    Returns:
        float64 of shape (7,), or (12,) with `locate`, on the tensor's device, for `read_rows`. It keeps nothing of the
        tensor alive.
    """
    dtype = tensor.dtype
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
    return torch.cat([torch.stack(counts).to(torch.float64), measured.to(torch.float64)])


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
        rows: (numel, row) pairs. Rows with and without location may be mixed.

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
            stats[index] = _decoded(numel, numbers[start:end])
            start = end
    return [stats[index] for index in range(len(rows))]


def _decoded(numel: int, row: list[float]) -> Stats:
    located = len(row) > _COUNTS
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
    )
