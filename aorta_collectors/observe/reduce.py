"""What one tensor looked like: counts of bad elements and the finite range, in one pass when it is clean.

Shapes do not matter here, every reduction is over all elements. Units are those of the tensor. Values:

* NaN and Inf are counted and left out of the finite range;
* "huge" counts finite elements with |x| > threshold, compared exactly, whatever the dtype;
* an empty tensor, one without data (meta), a sparse, nested or quantized one is not readable: `readable` says None;
* bool counts as 0 and 1, a complex tensor as its real and imaginary parts (two values an element);
* of a DTensor, this rank's shard is read: no collective is started on the program's behalf.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch
from torch import Tensor

_LARGEST = sys.float_info.max
_PLAIN = (Tensor, torch.nn.Parameter)
_NARROW = (torch.float16, torch.bfloat16)
# torch has no aminmax for these. A uint64 beyond 2**53 is rounded.
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.float64}


class Stats(NamedTuple):
    """Counts and finite range of one tensor. The range is None where no element is finite."""

    numel: int
    nan_count: int
    inf_count: int
    huge_count: int
    finite_count: int
    finite_min: float | None
    finite_max: float | None

    @property
    def finite_abs_max(self) -> float | None:
        if self.finite_min is None or self.finite_max is None:
            return None
        return max(abs(self.finite_min), abs(self.finite_max))

    @property
    def bad(self) -> bool:
        return bool(self.nan_count or self.inf_count or self.huge_count)

    @classmethod
    def clean(cls, numel: int, low: float, high: float) -> Stats:
        return cls(numel, 0, 0, 0, numel, float(low), float(high))


def readable(tensor: Tensor) -> Tensor | None:
    """The strided, real, detached tensor to reduce for `tensor`, sharing its memory, or None if there is none."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    if type(tensor) not in _PLAIN:
        # DTensor and FSDP's parameters keep this rank's shard here; reading the wrapper would start a collective.
        local = getattr(tensor, "_local_tensor", None)
        tensor = local if isinstance(local, Tensor) else tensor.as_subclass(Tensor)
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return None
    if tensor.is_quantized or tensor.numel() == 0:
        return None
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype is torch.bool:
        tensor = tensor.view(torch.uint8)
    elif tensor.is_floating_point() and tensor.element_size() == 1:
        tensor = tensor.float()
    elif tensor.dtype in _WIDER:
        tensor = tensor.to(_WIDER[tensor.dtype])
    return tensor


def reduce_now(tensor: Tensor, threshold: float) -> tuple[float, float, Stats | None]:
    """Reduce a readable tensor in host memory at once.

    A clean tensor costs one pass: aminmax lets a NaN through, so both ends within the threshold prove that no
    element is NaN, Inf or huge. Only then are counts computed, in a few more passes.

    Returns:
        (lowest, highest, None) for a clean tensor, else (0.0, 0.0, stats).
    """
    low_tensor, high_tensor = torch.aminmax(tensor)
    low, high = low_tensor.item(), high_tensor.item()
    limit = threshold if threshold < _LARGEST else _LARGEST
    if -limit <= low and high <= limit:
        return low, high, None
    return 0.0, 0.0, _count(tensor, limit)


def _count(tensor: Tensor, limit: float) -> Stats:
    numel = tensor.numel()
    finite = torch.isfinite(tensor)
    finite_count = int(finite.sum())
    nan_count = int(torch.isnan(tensor).sum())
    inf_count = numel - finite_count - nan_count
    if finite_count == 0:
        return Stats(numel, nan_count, inf_count, 0, 0, None, None)
    kept = tensor if finite_count == numel else tensor[finite]
    low, high = torch.aminmax(kept)
    huge_count = int(_beyond(kept, limit).sum())
    return Stats(numel, nan_count, inf_count, huge_count, finite_count, float(low), float(high))


def _beyond(tensor: Tensor, limit: float) -> Tensor:
    """Elementwise |x| > limit, exact: torch would round the limit to the tensor's dtype, so it is rounded down here."""
    if tensor.dtype in _NARROW:
        tensor = tensor.float()
    elif not tensor.is_floating_point():
        whole = int(limit)
        if whole >= 2**63:
            return torch.zeros_like(tensor, dtype=torch.bool)
        tensor = tensor.long()
        return (tensor > whole) | (tensor < -whole)
    if tensor.dtype is torch.float32:
        # float32 of a limit beyond its range is Inf, which no finite element exceeds: right as it is.
        rounded = torch.tensor(limit, dtype=torch.float32)
        if rounded.double().item() > limit:
            rounded = torch.nextafter(rounded, torch.tensor(-torch.inf))
        limit = rounded.item()
    return (tensor > limit) | (tensor < -limit)


def reduce_later(tensor: Tensor, threshold: float) -> Tensor:
    """Queue the reduction of a readable tensor on its device, without waiting for it.

    Returns:
        float64 of shape (6,) on the tensor's device: nan, inf, huge and finite counts, finite min and max (Inf and
        -Inf where nothing is finite). `read_rows` turns many of these into `Stats` with one transfer per device.
    """
    finite = torch.isfinite(tensor)
    values = tensor if tensor.is_floating_point() else tensor.double()
    low = torch.where(finite, values, torch.inf).amin()
    high = torch.where(finite, values, -torch.inf).amax()
    huge = (_beyond(tensor, min(threshold, _LARGEST)) & finite).sum()
    row = (torch.isnan(tensor).sum(), torch.isinf(tensor).sum(), huge, finite.sum(), low, high)
    return torch.stack([value.to(torch.float64) for value in row])


def read_rows(rows: list[tuple[int, Tensor]]) -> list[Stats]:
    """Bring rows of `reduce_later` to the host: one blocking copy per device, whatever the number of rows.

    Args:
        rows: (numel, row) pairs.
    """
    by_device: dict[torch.device, list[int]] = {}
    for index, (_, row) in enumerate(rows):
        by_device.setdefault(row.device, []).append(index)
    stats: list[Stats | None] = [None] * len(rows)
    for indices in by_device.values():
        table = torch.stack([rows[index][1] for index in indices]).tolist()
        for index, (nans, infs, huge, finite, low, high) in zip(indices, table, strict=True):
            bounds = (low, high) if finite else (None, None)
            stats[index] = Stats(rows[index][0], int(nans), int(infs), int(huge), int(finite), *bounds)
    return [entry for entry in stats if entry is not None]
