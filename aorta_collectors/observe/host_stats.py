"""TensorStats of numbers in host memory: as few and as fast passes as there can be for an ordinary float tensor.

What torch is fast at on a CPU, by element: amin and amax (aminmax takes half as long again), sums, norms of rows, and
conversions to bool, which write a quarter of what they read; what is written has to come from memory first, so that a
product into a buffer takes two or three times as long in a model's step as it does alone. torch.var and torch.var_mean
take ten to thirty times as long as any of these, a comparison with zero eight times. So: both ends, the sum, the norms
of short rows, and whether any element is false as a bool; only then zeros are counted.

float32 sums go wrong in two ways, and each is kept out. Long sums drift: torch adds up in stages, rows are short, and
what pieces and rows come to is added up in float64. And mean squares less squared mean cancel where a tensor lies far
from zero: the same is then done with the distances from the mean, and, should that not do, in float64.
"""

from __future__ import annotations

import functools
import math
import struct
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.tensor_stats import Ends, TensorStats

# Elements of a piece: the passes over 2 MiB find it in the cache. Far smaller ones cost more calls than that saves.
# float32 counts them exactly.
_AT_ONCE = 1 << 19
# Of a row: in float32 the squares of as many add up to 3e-7 at worst, and faster than those of longer or shorter ones.
_ROW = 1 << 8
# Fewer are read in float64: the calls cost more than the passes.
_SMALL = 1 << 11
_FAST = (torch.float32, torch.float16, torch.bfloat16)
# Magnitudes of the largest element between which the squares of all that counts are within float32.
_SMALLEST, _LARGEST = 1e-11, 1e16
# Mean square over variance up to which a float32 sum of squares has the standard deviation to 1e-6.
_CANCELLED = 8.0
# The same of float64.
_NEAR_THE_ENDS = 1e-120, 1e120

Pieces = Callable[[], Iterator[Tensor]]


class _Buffers(threading.local):
    """Two of each thread's own. They stay: fresh memory would cost more to map than the tensor to read."""

    def __init__(self) -> None:
        self._made: list[Tensor] = []
        self._flags: Tensor | None = None

    @property
    def flags(self) -> Tensor:
        """One of bool."""
        if self._flags is None:
            with torch.inference_mode(False):
                self._flags = torch.empty(_AT_ONCE, dtype=torch.bool, device="cpu")
        return self._flags

    def __getitem__(self, index: int) -> Tensor:
        while len(self._made) <= index:
            with torch.inference_mode(False):  # made in inference mode, it could not be written to elsewhere
                self._made.append(torch.empty(_AT_ONCE, dtype=torch.float32, device="cpu"))
        return self._made[index]


class _Sums(NamedTuple):
    total: float
    squares: float


class _Passes(NamedTuple):
    """What is known of a tensor, all of it finite, after the first passes; sums None where float32 does not do."""

    low: float
    high: float
    zeros: int
    saturated: int
    sums: _Sums | None


class HostStats:
    """Reads tensors in host memory. Safe to use from several threads."""

    def __init__(self) -> None:
        self._buffers = _Buffers()

    def read(self, values: Tensor, ends: Ends | None) -> TensorStats:
        """The statistics of `values`, which are as `plain_values` gives them and are not changed.

        Means are exact to 1e-6 of the root mean square, standard deviations to 1e-6 of themselves.
        """
        times, values = without_repeats(values)
        numel = values.numel()
        pieces: Pieces
        if numel <= _SMALL:
            whole = (values.double().reshape(-1),)
            pieces = functools.partial(iter, whole)
        else:
            pieces = functools.partial(_pieces, values)
        is_fast = numel > _SMALL and values.dtype in _FAST
        seen = self._fast(pieces, ends) if is_fast else _exact(pieces, ends)
        if seen is None:
            return _with_bad(pieces, ends, numel, times)
        mean, std = self._moments(pieces, numel, seen)
        counts = (numel * times, 0, 0, 0, seen.zeros * times, seen.saturated * times)
        return TensorStats(*counts, seen.low, seen.high, mean, std)

    def _fast(self, pieces: Pieces, ends: Ends | None) -> _Passes | None:
        """The first passes; None where something is not finite."""
        low, high, zeros, saturated, total, squares = math.inf, -math.inf, 0, 0, 0.0, 0.0
        for piece in pieces():
            wide = self._as_float32(piece)
            least, most = wide.amin().item(), wide.amax().item()
            if not (math.isfinite(least) and math.isfinite(most)):  # a NaN gets through both
                return None
            low, high = min(low, least), max(high, most)
            total += wide.sum().item()
            squares += self._squares(wide)
            if least == 0.0 or most == 0.0 or (least < 0.0 < most and self._has_zero(wide)):
                zeros += self._count(torch.eq, wide, 0.0)
            if ends is not None and least <= ends.low:
                saturated += self._count(torch.le, wide, ends.within(torch.float32).low)
            if ends is not None and most >= ends.high:
                saturated += self._count(torch.ge, wide, ends.within(torch.float32).high)
        largest = max(abs(low), abs(high))
        sums = _Sums(total, squares) if _SMALLEST <= largest <= _LARGEST else None
        return _Passes(low, high, zeros, saturated, sums)

    def _moments(self, pieces: Pieces, numel: int, seen: _Passes) -> tuple[float, float]:
        """Mean and standard deviation of a finite tensor."""
        if seen.low == seen.high:
            return seen.low, 0.0
        if seen.sums is not None:
            found = _spread(seen.sums, numel)
            if found is None:
                found = self._around(pieces, numel, seen, seen.sums.total / numel)
            if found is not None:
                return found
        return _exact_moments(pieces, numel, seen.low, seen.high)

    def _around(self, pieces: Pieces, numel: int, seen: _Passes, mean: float) -> tuple[float, float] | None:
        """The same from the distances from a mean that is nearly right; near it a difference is exact in float32."""
        center: float = struct.unpack("f", struct.pack("f", mean))[0]
        reach = max(seen.high - center, center - seen.low)
        if not _SMALLEST <= reach <= _LARGEST:
            return None
        total = squares = 0.0
        for piece in pieces():
            distances = torch.sub(self._as_float32(piece), center, out=self._buffers[0][: len(piece)])
            total += distances.sum().item()
            squares += self._squares(distances)
        found = _spread(_Sums(total, squares), numel)
        return None if found is None else (center + found[0], found[1])

    def _as_float32(self, piece: Tensor) -> Tensor:
        return piece if piece.dtype is torch.float32 else self._buffers[0][: len(piece)].copy_(piece)

    def _squares(self, wide: Tensor) -> float:
        """The sum of the elements' squares."""
        if len(wide) % _ROW:
            return torch.mul(wide, wide, out=self._buffers[1][: len(wide)]).sum().item()
        norms = torch.linalg.vector_norm(wide.view(-1, _ROW), dim=1).double()
        return torch.dot(norms, norms).item()

    def _has_zero(self, wide: Tensor) -> bool:
        return self._buffers.flags[: len(wide)].copy_(wide).view(torch.uint8).amin().item() == 0

    def _count(self, compare: Callable[..., Tensor], piece: Tensor, number: float) -> int:
        return int(compare(piece, number, out=self._buffers[1][: len(piece)]).sum().item())


def _spread(sums: _Sums, numel: int) -> tuple[float, float] | None:
    """Mean and standard deviation; None where too little is left of the difference."""
    mean, square = sums.total / numel, sums.squares / numel
    variance = square - mean * mean
    return (mean, math.sqrt(variance)) if square <= _CANCELLED * variance and variance > 0.0 else None


def _exact(pieces: Pieces, ends: Ends | None) -> _Passes | None:
    """The first passes in float64, for any dtype; None where something is not finite."""
    low, high, zeros, saturated = math.inf, -math.inf, 0, 0
    for piece in pieces():
        wide = piece.double()
        least, most = (end.item() for end in torch.aminmax(wide))
        if not (math.isfinite(least) and math.isfinite(most)):
            return None
        low, high = min(low, least), max(high, most)
        if least <= 0.0 <= most:
            zeros += len(wide) - int(torch.count_nonzero(wide).item())
        saturated += _beyond(wide, ends, least, most)
    return _Passes(low, high, zeros, saturated, None)


def _beyond(wide: Tensor, ends: Ends | None, least: float, most: float) -> int:
    count = 0
    if ends is not None and least <= ends.low:
        count += int((wide <= ends.low).sum().item())
    if ends is not None and most >= ends.high:
        count += int((wide >= ends.high).sum().item())
    return count


def _exact_moments(pieces: Pieces, numel: int, low: float, high: float) -> tuple[float, float]:
    """Mean and standard deviation of finite elements in float64, in two passes."""
    if low == high:
        return low, 0.0
    largest = max(abs(low), abs(high))
    # A power of two, so that nothing is rounded: sums and squares of float64 itself can leave its range.
    near = _NEAR_THE_ENDS[0] <= largest <= _NEAR_THE_ENDS[1]
    scale = 1.0 if near else math.ldexp(1.0, -max(-1000, min(1000, math.frexp(largest)[1])))
    total = squares = rounded = 0.0
    for piece in pieces():
        total += _scaled(piece, scale).sum().item()
    mean = total / numel
    for piece in pieces():
        distances = _scaled(piece, scale) - mean
        squares += torch.dot(distances, distances).item()
        rounded += distances.sum().item()
    # By which the mean was rounded. The distances may be no larger, where elements are next to each other.
    off = rounded / numel
    return (mean + off) / scale, math.sqrt(max(0.0, squares / numel - off * off)) / scale


def _scaled(piece: Tensor, scale: float) -> Tensor:
    wide = piece.double()
    return wide if scale == 1.0 else wide * scale


def _with_bad(pieces: Pieces, ends: Ends | None, numel: int, times: int) -> TensorStats:
    """Of a tensor with NaN or Inf: rare, and so no matter of speed."""
    nans = posinfs = zeros = saturated = finite = 0
    low, high = math.inf, -math.inf
    for piece in pieces():
        good = piece[torch.isfinite(piece)]
        finite += len(good)
        nans += int(torch.isnan(piece).sum().item())
        posinfs += int(torch.isposinf(piece).sum().item())
        zeros += int((piece == 0).sum().item())
        saturated += _beyond(piece.double(), ends, -math.inf, math.inf)
        if len(good):
            low, high = min(low, float(good.amin().item())), max(high, float(good.amax().item()))
    infs = numel - finite - nans

    def stats(low: float | None, high: float | None, mean: float | None, std: float | None) -> TensorStats:
        counts = (numel * times, nans * times, infs * times, posinfs * times, zeros * times, saturated * times)
        return TensorStats(*counts, low, high, mean, std)

    if not finite:
        return stats(None, None, None, None)

    def finite_pieces() -> Iterator[Tensor]:
        return (piece[torch.isfinite(piece)] for piece in pieces())

    return stats(low, high, *_exact_moments(finite_pieces, finite, low, high))


def without_repeats(values: Tensor) -> tuple[int, Tensor]:
    """How often each element is repeated by expanding, as the gradient of a sum is, and the tensor without repeats."""
    times = 1
    if not values.is_contiguous():
        for dim, (size, stride) in enumerate(zip(values.shape, values.stride(), strict=True)):
            if stride == 0 and size > 1:
                times *= size
                values = values.narrow(dim, 0, 1)
    return times, values


def _pieces(values: Tensor) -> Iterator[Tensor]:
    """All elements once, in flat pieces without gaps, in any order; what lies without gaps is not copied."""
    flat = _flat(values)
    if flat is not None:
        yield from (flat,) if flat.numel() <= _AT_ONCE else torch.split(flat, _AT_ONCE)
    elif values.numel() <= _AT_ONCE:
        yield values.reshape(-1)
    else:
        size, dim = max((size, dim) for dim, size in enumerate(values.shape))
        rows = max(1, _AT_ONCE * size // values.numel())
        for part in torch.split(values, rows, dim):
            yield from _pieces(part)


def _flat(values: Tensor) -> Tensor | None:
    """The elements as they lie in memory; None where there are gaps between them, or several at one place."""
    if values.is_contiguous():
        return values.view(-1)
    expected = 1
    for stride, size in sorted(zip(values.stride(), values.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return None
            expected *= size
    return values.as_strided((values.numel(),), (1,))
