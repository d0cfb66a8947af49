"""How two tensors differ: at the worst place the elements themselves first, then how far, and how many."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from aorta_collectors.analysis.bundles.criterion import (
    BITWISE,
    COMPLEX,
    EXACTLY,
    TOLERANCE,
    ULP,
    Criterion,
    kind_of,
    lower_precision,
)
from aorta_collectors.analysis.bundles.elements import anywhere, as_one, magnitude
from aorta_collectors.analysis.bundles.equality import exactly_equal, same_bits
from aorta_collectors.analysis.bundles.ulp import FAR, distances

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Elements that are looked at together: a few copies of them in float64 stay small.
_CHUNK = 1 << 20

Number = float | int | str


class Distance(NamedTuple):
    """How far apart two elements are, or the furthest of all are; None where that is no number.

    Attributes:
        absolute: In the tensors' own unit.
        relative: As a part of the baseline's magnitude; None where that is 0.
        ulps: Steps between numbers of the dtype, of the one of lower precision; None for integers.
    """

    absolute: float | None = None
    relative: float | None = None
    ulps: int | None = None


@dataclass(frozen=True)
class Difference:
    """Of a candidate's tensor from a baseline's.

    Attributes:
        index: Of the worst element: the first that is finite on one side alone, else the furthest apart; None where all
            are equal.
        baseline, candidate: The elements there; text where JSON has no such number.
        there: How far apart these two are.
        largest: The largest of each kind among elements that are finite on both sides: these may be three elements.
        ulp_dtype: Whose steps are counted; None for integers.
        unequal: Elements that are not equal, NaN counted as equal to NaN as the criterion has it.
        outside: Those that the criterion does not let pass.
        nans, infs: How many there are in the baseline and in the candidate.
        scale: The largest finite magnitude of the baseline, or of what it was computed from.
        below_atol: Whether an absolute tolerance that was asked for lets all pass, whatever their sign: no element of
            either side is larger than half of it.
    """

    index: tuple[int, ...] | None
    baseline: Number | None
    candidate: Number | None
    there: Distance
    largest: Distance
    ulp_dtype: str | None
    unequal: int
    outside: int
    numel: int
    nans: tuple[int, int]
    infs: tuple[int, int]
    scale: float
    below_atol: bool

    @property
    def largest_absolute(self) -> float | None:
        return self.largest.absolute

    @property
    def part_outside(self) -> float:
        """From 0 to 1."""
        return self.outside / self.numel if self.numel else 0.0

    @property
    def of_scale(self) -> float:
        """The largest absolute difference as a part of the scale; 0 where nothing differs."""
        apart = self.largest.absolute or 0.0
        return apart / self.scale if self.scale else math.inf if apart else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "absolute": _plain(self.there.absolute),
            "relative": _plain(self.there.relative),
            "ulps": self.there.ulps,
            "largest_absolute": _plain(self.largest.absolute),
            "largest_relative": _plain(self.largest.relative),
            "largest_ulps": self.largest.ulps,
            "ulp_dtype": self.ulp_dtype,
            "unequal": self.unequal,
            "outside": self.outside,
            "part_outside": self.part_outside,
            "numel": self.numel,
            "nan_count": dict(zip(("baseline", "candidate"), self.nans, strict=True)),
            "inf_count": dict(zip(("baseline", "candidate"), self.infs, strict=True)),
            "scale": self.scale,
            "below_atol": self.below_atol,
        }


def difference_of(baseline: Tensor, candidate: Tensor, criterion: Criterion, scale: float = 0.0) -> Difference:
    """Compare two tensors of one shape, whose dtypes are of one kind, element by element.

    Args:
        scale: Of what the baseline was computed from, where that is larger than the largest of its own elements.
    """
    import torch

    names = [str(side.dtype).removeprefix("torch.") for side in (baseline, candidate)]
    is_complex = kind_of(names[0]) == COMPLEX
    flat = [
        torch.view_as_real(side).reshape(-1, 2) if is_complex else side.reshape(-1) for side in (baseline, candidate)
    ]
    chunks = range(0, baseline.numel(), _CHUNK)
    scales = [max((magnitude(side[start : start + _CHUNK]) for start in chunks), default=0.0) for side in flat]
    scale = max(scales[0], scale)
    totals = _Totals(criterion, names[0], names[1], scale)
    for start in chunks:
        totals.add(start, *(side[start : start + _CHUNK] for side in flat))
    index: tuple[int, ...] | None = None
    if totals.worst_index is not None:
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(totals.worst_index), baseline.shape))
    nans, infs = totals.bad
    return Difference(
        index,
        None if index is None else _element(baseline[index]),
        None if index is None else _element(candidate[index]),
        totals.there,
        totals.largest,
        None if kind_of(names[0]) == EXACTLY else lower_precision(*names),
        totals.unequal,
        totals.outside,
        baseline.numel(),
        nans,
        infs,
        scale,
        criterion.kind == TOLERANCE and totals.unequal > 0 and 2 * max(scales) <= (criterion.atol or 0.0),
    )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Comparing many small tensors takes a tenth without threads that wait for each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Totals:
    """What chunks come to together."""

    def __init__(self, criterion: Criterion, baseline: str, candidate: str, scale: float) -> None:
        self._criterion = criterion
        self._kind = kind_of(baseline)
        self._tolerance = criterion.tolerance(baseline, candidate, scale=scale)
        self._dtype = lower_precision(baseline, candidate)
        self.unequal = self.outside = 0
        self.worst_index: int | None = None
        self.there = Distance()
        self._badness = (False, -1.0)
        self._absolute = self._relative = -1.0
        self._ulps = -1
        self._bad = [[0, 0], [0, 0]]

    @property
    def bad(self) -> tuple[tuple[int, int], tuple[int, int]]:
        (nan_a, nan_b), (inf_a, inf_b) = self._bad
        return (nan_a, nan_b), (inf_a, inf_b)

    @property
    def largest(self) -> Distance:
        absolute, relative = (None if value < 0 else value for value in (self._absolute, self._relative))
        return Distance(absolute, relative, None if self._ulps < 0 else self._ulps)

    def add(self, start: int, a: Tensor, b: Tensor) -> None:
        """One chunk of each side: (elements,), or (elements, 2) of complex numbers' parts."""
        import torch

        wide_a, wide_b, apart, size = self._numbers(a, b)
        finite = as_one(wide_a.isfinite() & wide_b.isfinite())
        both_nan = wide_a.isnan() & wide_b.isnan()
        same = exactly_equal(a, b)
        equal = as_one(same | both_nan if self._criterion.equals_nan else same)
        steps = self._steps(a, b)
        outside = ~self._passes(a, b, equal, apart, size, finite, steps)
        self.unequal += int((~equal).sum())
        self.outside += int(outside.sum())
        for side, wide in enumerate((wide_a, wide_b)):
            self._bad[0][side] += int(anywhere(wide.isnan()).sum())
            self._bad[1][side] += int(anywhere(wide.isinf()).sum())
        relative = apart / size
        if finite.any():
            self._absolute = max(self._absolute, float(apart[finite].max()))
            counted = finite & (size > 0)
            if counted.any():
                self._relative = max(self._relative, float(relative[counted].max()))
            if steps is not None:
                self._ulps = max(self._ulps, int(steps[finite].max()))
        place = self._find_worse(start, outside, equal, torch.where(finite, apart, math.inf))
        if place is not None and finite[place]:
            self.there = Distance(
                float(apart[place]),
                float(relative[place]) if size[place] > 0 else None,
                None if steps is None else int(steps[place]),
            )
        elif place is not None:
            self.there = Distance()

    def _find_worse(self, start: int, outside: Tensor, equal: Tensor, apart: Tensor) -> int | None:
        """The worst place of a chunk, where it is worse than all before. What does not pass is worse than what does."""
        import torch

        candidates = outside if outside.any() else ~equal
        if candidates.any():
            place = int(torch.where(candidates, apart, -1.0).argmax())
            badness = bool(outside[place]), float(apart[place])
            if badness > self._badness:
                self.worst_index, self._badness = start + place, badness
                return place
        return None

    def _numbers(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both sides in float64, how far apart elements are, and the baseline's magnitude."""
        import torch

        wide_a, wide_b = a.to(torch.float64), b.to(torch.float64)
        if self._kind == COMPLEX:
            return (
                wide_a,
                wide_b,
                torch.linalg.vector_norm(wide_b - wide_a, dim=1),
                torch.linalg.vector_norm(wide_a, dim=1),
            )
        if a.dtype == b.dtype == torch.int64:  # float64 does not tell large ones apart
            apart = torch.maximum(a, b) - torch.minimum(a, b)
            exact = apart.to(torch.float64)
            return wide_a, wide_b, torch.where(apart < 0, exact + 2.0**64, exact), wide_a.abs()
        return wide_a, wide_b, (wide_b - wide_a).abs(), wide_a.abs()

    def _steps(self, a: Tensor, b: Tensor) -> Tensor | None:
        import torch

        if self._kind == EXACTLY:
            return None
        dtype: torch.dtype = getattr(torch, self._dtype)
        dtype = dtype.to_real() if dtype.is_complex else dtype
        found = distances(a.to(dtype), b.to(dtype), equal_nan=self._criterion.equal_nan)
        return found.amax(dim=1) if self._kind == COMPLEX else found

    def _passes(
        self, a: Tensor, b: Tensor, equal: Tensor, apart: Tensor, size: Tensor, finite: Tensor, steps: Tensor | None
    ) -> Tensor:
        import torch

        if self._criterion.kind == BITWISE:
            return as_one(same_bits(a, b)) if a.dtype == b.dtype else torch.zeros_like(equal)
        if self._criterion.kind == ULP and steps is not None:
            return steps <= min(self._criterion.ulps, FAR - 1)
        if self._kind == EXACTLY:  # how far apart they are is not told in full of integers of 64 bits
            return equal
        rtol, atol = self._tolerance
        return equal | (finite & (apart <= atol + rtol * size))


def _element(value: Tensor) -> Number:
    number = value.item()
    if isinstance(number, complex):
        return str(number)
    return _plain(number) if isinstance(number, float) else int(number)


def _plain(number: float | None) -> Any:
    """Text where JSON has no such number."""
    return number if number is None or math.isfinite(number) else str(number)
