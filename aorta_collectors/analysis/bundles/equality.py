"""Which elements of two tensors are equal: as numbers, whatever their dtypes, or bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def exactly_equal(a: Tensor, b: Tensor) -> Tensor:
    """Whether numbers are equal, element by element; NaN equals nothing."""
    import torch

    if a.dtype == b.dtype and not a.dtype.is_floating_point:
        return same_bits(a, b)
    equal = a.to(torch.float64) == b.to(torch.float64)
    if a.dtype.is_floating_point or b.dtype.is_floating_point:
        return equal
    return equal & (a.to(torch.int64) == b.to(torch.int64))  # float64 does not tell large ones apart


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Whether elements of one dtype have the same bits."""
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
    return a.contiguous().view(integers) == b.contiguous().view(integers)
