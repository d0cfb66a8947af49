"""What a dtype can hold: how far a tensor is from its end, and limits rounded so that they compare exactly.

A comparison of a tensor with a Python number is made in the tensor's dtype, which rounds the number: 0.1 becomes a
float32 above 0.1, and 300 has no int8. Ends that are rounded inward first give the same answer for every element.
"""

from __future__ import annotations

import math

import torch


def headroom(dtype: torch.dtype, finite_abs_max: float | None) -> float | None:
    """How many more doublings a low-precision tensor can take before it overflows: log2(finfo.max / finite_abs_max).

    Returns:
        Bits, 0 for a tensor that holds the largest value of its dtype. None for dtypes other than float16, bfloat16,
        complex32 and float8, and where nothing but zeros is finite.
    """
    if not finite_abs_max or not _is_narrow(dtype):
        return None
    return math.log2(torch.finfo(dtype).max / finite_abs_max)


def _is_narrow(dtype: torch.dtype) -> bool:
    return dtype in (torch.float16, torch.bfloat16, torch.complex32) or is_float8(dtype)


def is_float8(dtype: torch.dtype) -> bool:
    return str(dtype).startswith("torch.float8_")


def huge_limit(dtype: torch.dtype, threshold: float, headroom_bits: float | None) -> float:
    """Above which magnitude an element of `dtype` counts as huge.

    Args:
        threshold: The limit for every dtype.
        headroom_bits: A floating tensor with less headroom than this is huge as well; None for the threshold alone.
            Negative bits, beyond what the dtype holds, are taken as 0.
    """
    if headroom_bits is None or not (dtype.is_floating_point or dtype.is_complex):
        return threshold
    try:
        largest = torch.finfo(dtype).max
    except NotImplementedError:  # packed dtypes, which are not read either
        return threshold
    return min(threshold, largest * math.pow(2.0, -max(headroom_bits, 0.0)))


def squares_are_exact() -> bool:
    """Whether products of float32 in host memory are what float32 makes of them.

    A program may allow less (torch.set_float32_matmul_precision): then oneDNN sums squares, in bfloat16 and slowly.
    """
    try:
        matmul = getattr(torch.backends.mkldnn, "matmul", None)  # since torch 2.9
        if matmul is None:
            return torch.get_float32_matmul_precision() == "highest"
        return matmul.fp32_precision in ("none", "ieee")
    except Exception:
        return False


def inner_range(dtype: torch.dtype, low: float, high: float) -> tuple[float, float] | None:
    """[low, high] as the smallest and the largest value of `dtype` in it: a finite x is outside one as of the other.

    Args:
        dtype: A real dtype, floating or integer.
        low, high: May be infinite, and may be in the wrong order: then every element is outside.

    Returns:
        Ends that `dtype` holds exactly, infinite where it holds no finite value beyond them (floating dtypes). They are
        in the wrong order where the range holds no value of the dtype. None if the range lies beyond the integers of
        `dtype`, so that every element is outside.
    """
    if dtype.is_floating_point:
        return -_round_down(dtype, -low), _round_down(dtype, high)
    info = torch.iinfo(dtype)
    if low > info.max or high < info.min:
        return None
    return (
        info.min if low <= info.min else math.ceil(low),
        info.max if high >= info.max else math.floor(high),
    )


def _round_down(dtype: torch.dtype, value: float) -> float:
    """The largest value of a floating dtype that is not above `value`, an infinite one included."""
    if dtype is torch.float64 or math.isinf(value):
        return value
    info = torch.finfo(dtype)
    if abs(value) > info.max:
        return info.max if value > 0 else -math.inf
    # Neighbouring values lie one quantum apart; below the smallest normal value it shrinks no further. All the
    # arithmetic here is exact: the quantum is a power of two.
    quantum = max(math.ldexp(1.0, math.frexp(value)[1] - 1), info.smallest_normal) * info.eps
    return math.floor(value / quantum) * quantum
