"""Bit patterns as integers in the order of their values, so that one integer kernel reads every dtype, and exactly.

A key is an integer with key(a) < key(b) wherever a < b. Keys of dtypes up to 32 bits fit int32, others int64. -0.0 has
a key of its own just below that of 0.0: a lower end of zero is taken as -0.0, an upper one as 0.0. NaN lies beyond the
finite keys, on either side.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import torch

from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.precision import inner_range, is_float8

#: How a bit pattern becomes a key; the kernel knows these numbers.
SIGNED, UNSIGNED, FLOAT, FNUZ = range(4)

_NOWHERE = 1 << 20  # a key that no pattern of 8 bits has
_STRUCTS = {torch.float16: ("<e", "<h"), torch.float32: ("<f", "<i"), torch.float64: ("<d", "<q")}
_DIGITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}
_INTEGERS = {
    torch.int8: (8, SIGNED),
    torch.int16: (16, SIGNED),
    torch.int32: (32, SIGNED),
    torch.int64: (64, SIGNED),
    torch.uint8: (8, UNSIGNED),
    torch.uint64: (64, UNSIGNED),
}


class Keys(NamedTuple):
    """What one tensor's keys are held against; all ends belong to their range. Empty ranges have them in wrong order.

    Attributes:
        clean_low, clean_high: Where an element is not bad in any way.
        finite_low, finite_high: The finite values.
        negative_infinity, positive_infinity: Looked at outside the finite range alone.
        huge_low, huge_high, low, high: Outside of these a finite element is huge, or out of range.
    """

    clean_low: int
    clean_high: int
    finite_low: int
    finite_high: int
    negative_infinity: int
    positive_infinity: int
    huge_low: int
    huge_high: int
    low: int
    high: int


class Format:
    """The keys of one dtype.

    Attributes:
        bits: Width of an element.
        kind: SIGNED, UNSIGNED, FLOAT (sign and magnitude) or FNUZ (the same, with NaN in the place of -0.0).
        digits: Bits of the significand that are stored; of an integer, all of them.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._values: dict[int, float] = {}  # key -> finite value, of the dtypes of 8 bits that are floating
        if dtype in _INTEGERS:
            self.bits, self.kind = _INTEGERS[dtype]
            self.digits = self.bits
            info = torch.iinfo(dtype)
            self._finite = (self._key_of_integer(info.min), self._key_of_integer(info.max))
            self._infinite = (0, 0)
            return
        self.bits = dtype.itemsize * 8
        if self.bits > 8:
            self.kind = FLOAT
            self.digits = _DIGITS[dtype]
            largest = self._key_of_float(torch.finfo(dtype).max)
            self._finite, self._infinite = (-1 - largest, largest), (-2 - largest, largest + 1)
            return
        name = str(dtype)
        self.kind = UNSIGNED if name.endswith("e8m0fnu") else FNUZ if name.endswith("fnuz") else FLOAT
        found = re.search(r"_e\dm(\d)", name)  # torch.finfo has it wrong for some
        assert found is not None
        self.digits = int(found[1])
        self._infinite = (-_NOWHERE, _NOWHERE)
        codes = torch.arange(256, dtype=torch.uint8, device="cpu")
        for code, value in enumerate(codes.view(dtype).double().tolist()):
            key = self._key_of_code(code)
            if abs(value) < float("inf"):
                self._values[key] = value
            elif value == float("inf"):
                self._infinite = (-1 - key, key)
        self._finite = (min(self._values), max(self._values))

    def keys(self, limits: Limits) -> Keys:
        """`limits` for tensors of this dtype."""
        huge = self._range(-limits.huge, limits.huge)
        inside = self._range(limits.low, limits.high) if limits.bounded else self._finite
        clean = (max(self._finite[0], huge[0], inside[0]), min(self._finite[1], huge[1], inside[1]))
        return Keys(*clean, *self._finite, *self._infinite, *huge, *inside)

    def value(self, key: int) -> float:
        """The value with this key; integers beyond 2**53 are rounded. -0.0 is given as 0.0."""
        if self.kind == SIGNED:
            return float(key)
        if self.bits == 8 and self._values:
            if key in self._values:
                return self._values[key] + 0.0
            return float("nan") if key not in self._infinite else float("inf") if key > 0 else float("-inf")
        if self.kind == UNSIGNED:
            return float(key + 2**63 if self.bits == 64 else key)
        bits = key if key >= 0 else key ^ (2 ** (self.bits - 1) - 1)
        if self.dtype is torch.bfloat16:
            return _reinterpreted(bits << 16, "<i", "<f") + 0.0
        as_float, as_integer = _STRUCTS[self.dtype]
        return _reinterpreted(bits, as_integer, as_float) + 0.0

    def _range(self, low: float, high: float) -> tuple[int, int]:
        """The keys of the smallest and the largest value in [low, high]."""
        if self.dtype in _INTEGERS:
            ends = inner_range(self.dtype, low, high)
            if ends is None:
                return self._finite[1], self._finite[0]
            return self._key_of_integer(int(ends[0])), self._key_of_integer(int(ends[1]))
        if self._values:
            above = [key for key, value in self._values.items() if value >= low]
            below = [key for key, value in self._values.items() if value <= high]
            return min(above, default=_NOWHERE), max(below, default=-_NOWHERE)
        ends = inner_range(self.dtype, low, high)
        assert ends is not None  # of a floating dtype it never is
        return self._key_of_float(ends[0] or -0.0), self._key_of_float(ends[1] + 0.0)

    def _key_of_integer(self, value: int) -> int:
        return value - 2**63 if self.dtype is torch.uint64 else value

    def _key_of_float(self, value: float) -> int:
        if self.dtype is torch.bfloat16:
            bits = int(_reinterpreted(value, "<f", "<i")) >> 16
        else:
            bits = int(_reinterpreted(value, *_STRUCTS[self.dtype]))
        return bits if bits >= 0 else bits ^ (2 ** (self.bits - 1) - 1)

    def _key_of_code(self, code: int) -> int:
        if self.kind == UNSIGNED:
            return code
        if code < 128:
            return code
        if self.kind == FNUZ and code == 128:
            return 128
        return (code - 256) ^ 127


def _reinterpreted(value: float, source: str, target: str) -> float:
    number: float = struct.unpack(target, struct.pack(source, value))[0]
    return number


def has_format(dtype: torch.dtype) -> bool:
    """Whether tensors of `dtype` can be read as keys."""
    return dtype in _INTEGERS or dtype in _STRUCTS or dtype is torch.bfloat16 or is_float8(dtype)
