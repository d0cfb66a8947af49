"""Whether all of a tensor is finite, in one pass: what NaN or Inf is added to is never finite again.

A sum is as fast as memory is, on a host and on a device. That of finite numbers may run over: what is not finite is a
suspicion, which a sum in a wider dtype settles. Where the largest magnitude is wanted as well, both ends tell.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.host_stats import without_repeats

# The sum of finite numbers is finite there, however many they are; only float64 has nothing wider.
_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float64,
    torch.float64: torch.float64,
}


class Finite(NamedTuple):
    """Of a tensor that is all finite.

    Attributes:
        peak: Its largest magnitude; None where it was not asked for.
    """

    peak: float | None


FINITE = Finite(None)


def found_finite(values: Tensor) -> Finite | None:
    """`FINITE` if all of `values`, which are as `plain_values` gives them, is finite; waits for their device.

    None where something is not, and where float64 numbers are so large that their sum is not.
    """
    if not values.dtype.is_floating_point:
        return FINITE
    values = _summable(values)
    total = values.sum().item()
    if not math.isfinite(total):
        total = values.sum(dtype=_WIDE[values.dtype]).item()
    return FINITE if math.isfinite(total) else None


def found_finite_to(values: Tensor) -> Finite | None:
    """The same with the largest magnitude, of floating-point numbers, which takes two passes."""
    if not values.dtype.is_floating_point:
        return FINITE
    values = _summable(values)
    low, high = torch.stack([values.amin(), values.amax()]).tolist()
    # A NaN gets through both.
    return Finite(max(-low, high)) if math.isfinite(low) and math.isfinite(high) else None


def _summable(values: Tensor) -> Tensor:
    if values.dtype not in _WIDE:
        return values.float()  # torch has no reductions of float8
    return values if values.is_contiguous() else without_repeats(values)[1]
