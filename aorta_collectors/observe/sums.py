"""The sum and the sum of squares of what is finite in a tensor, from which come its mean and its root mean square."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Elements that are held as float64 at a time, so that a large tensor does not take eight bytes for each of its own.
_AT_ONCE = 1 << 20


class Sums(NamedTuple):
    """Over the finite elements of a tensor: both 0 where there are none, Inf or NaN beyond the largest float64.

    Attributes:
        total: Sum of the elements.
        squares: Sum of their squares. Those of float64 elements below 1e-154 are lost.
    """

    total: float
    squares: float


def sums_now(tensor: Tensor) -> Sums:
    """Of values in host memory, as `plain_values` gives them: a copy as float64, and a pass for each sum.

    What is not finite shows in the sum of squares; only then is it taken out, in further passes.
    """
    total = squares = 0.0
    for wide in _pieces(tensor):
        total += wide.sum().item()
        squares += torch.dot(wide, wide).item()
    return Sums(total, squares) if math.isfinite(squares) else Sums(*sums_later(tensor).tolist())


def sums_later(tensor: Tensor) -> Tensor:
    """Queue both sums, in float64 and always in the same order: float64 of shape (2,) on the tensor's device."""
    sums = []
    for wide in _pieces(tensor):
        finite = torch.nan_to_num(wide, nan=0.0, posinf=0.0, neginf=0.0)
        sums.append(torch.stack([finite.sum(), finite.square().sum()]))
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        yield flat[start : start + _AT_ONCE].to(torch.float64)
