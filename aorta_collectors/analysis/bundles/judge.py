"""What two observations of one tensor come to: matched, mismatched, or inconclusive, and why.

Digests are asked first, and decide most. Then values, where both sides kept them. Where they did not, what the
statistics prove: elements that all lie within a tolerance of each other have extremes that do so too, and as many NaN
and infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from aorta_collectors.analysis.bundles.criterion import COMPLEX, EXACTLY, ULP, Criterion, kind_of
from aorta_collectors.analysis.bundles.difference import Difference, difference_of
from aorta_collectors.analysis.bundles.observation import Observation
from aorta_collectors.analysis.tolerance import EXACT
from aorta_collectors.errors import ArtifactError

if TYPE_CHECKING:
    from torch import Tensor

MATCHED, MISMATCHED, MISSING, INCONCLUSIVE = "matched", "mismatched", "missing", "inconclusive"

BASELINE, CANDIDATE = 0, 1
#: Reads the values of an observation of one side.
Load = Callable[[int, Observation], "Tensor"]

_SIDES = ("baseline", "candidate")
# Of the rounding in our own arithmetic, which must not prove anything.
_SLACK = 1 + 1e-9


class Judgement(NamedTuple):
    """What a pair comes to.

    Attributes:
        identical: Whether it is known to be the same bit for bit.
        reason: Why it did not match; of what does, empty.
        difference: Where values of both sides were looked at, or are the same.
    """

    state: str
    reason: str = ""
    difference: Difference | None = None
    identical: bool = False


IDENTICAL = Judgement(MATCHED, identical=True)


def is_identical(a: Observation, b: Observation, criterion: Criterion) -> bool:
    """Whether digests alone show that they match: of most pairs, and quickly."""
    return (
        a.digest == b.digest
        and a.digest is not None
        and a.dtype == b.dtype
        and a.shape == b.shape
        and (not a.nan_count or criterion.equals_nan)
    )


def judge(a: Observation, b: Observation, criterion: Criterion, load: Load, scale: float = 0.0) -> Judgement:
    """Compare the baseline's observation with the candidate's.

    Args:
        scale: See `difference_of`.
    """
    if is_identical(a, b, criterion):
        return IDENTICAL
    alone = _bad_alone(a, b)
    if a.shape != b.shape:
        return Judgement(MISMATCHED, alone or "shapes differ")
    kinds = kind_of(a.dtype), kind_of(b.dtype)
    if kinds[0] != kinds[1]:
        return Judgement(MISMATCHED, alone or f"dtypes are of different kinds: {a.dtype}, {b.dtype}")
    if a.file is not None and b.file is not None:
        try:
            difference = difference_of(load(BASELINE, a), load(CANDIDATE, b), criterion, scale)
        except ArtifactError as error:
            return _without_values(a, b, criterion, scale, alone, f"values cannot be read: {error}")
        except RuntimeError as error:  # a dtype that torch has no arithmetic for
            return _without_values(a, b, criterion, scale, alone, f"values cannot be compared: {error}")
        if not difference.outside:
            return Judgement(MATCHED, "", difference)
        return Judgement(MISMATCHED, alone or _why(a, b, criterion), difference)
    return _without_values(a, b, criterion, scale, alone, _why_no_values(a, b))


def _why(a: Observation, b: Observation, criterion: Criterion) -> str:
    if criterion.is_bitwise and a.dtype != b.dtype:
        return f"dtypes differ: {a.dtype}, {b.dtype}"
    if a.nan_count and a.digest == b.digest and a.digest is not None:
        return "the same, with NaN on both sides, which equals nothing"
    return "bits differ" if criterion.is_bitwise else "values differ"


def _bad_alone(a: Observation, b: Observation) -> str:
    """The reason where one side alone has NaN, or infinities; empty otherwise."""
    if not (a.has_statistics and b.has_statistics):
        return ""
    for name, word in (("nan_count", "NaN"), ("inf_count", "Inf")):
        counts = getattr(a, name), getattr(b, name)
        if (counts[0] > 0) != (counts[1] > 0):
            return f"{word} in the {_SIDES[counts[1] > 0]} alone"
    return ""


def _why_no_values(a: Observation, b: Observation) -> str:
    without = [(side, each) for side, each in zip(_SIDES, (a, b), strict=True) if each.file is None]
    left_out = next((each.left_out for _, each in without if each.left_out), None)
    who = "neither side kept" if len(without) == len(_SIDES) else f"the {without[0][0]} kept no"
    return f"{who} values" + (f" ({left_out})" if left_out else "")


def _without_values(
    a: Observation, b: Observation, criterion: Criterion, scale: float, alone: str, why: str
) -> Judgement:
    """By digests and statistics.

    Args:
        alone: See `_bad_alone`.
        why: There is no more to go by.
    """
    if alone:
        return Judgement(MISMATCHED, alone)
    if criterion.is_bitwise and a.dtype != b.dtype:
        return Judgement(MISMATCHED, _why(a, b, criterion))
    both = a.has_statistics and b.has_statistics
    if both and (a.nan_count != b.nan_count or a.inf_count != b.inf_count):
        return Judgement(MISMATCHED, "counts of NaN or Inf differ")
    digests = a.digest is not None and b.digest is not None
    is_exact = criterion.is_bitwise or kind_of(a.dtype) == EXACTLY
    if digests and a.dtype == b.dtype and (is_exact or a.digest == b.digest):
        return Judgement(MISMATCHED, _why(a, b, criterion))
    if both and criterion.kind != ULP and _extremes_differ(a, b, criterion, scale):
        return Judgement(MISMATCHED, "extremes differ by more than elements may")
    if not digests:
        unread = a.unread or b.unread
        return Judgement(INCONCLUSIVE, f"there is no digest{f' ({unread})' if unread else ''}, and {why}")
    return Judgement(INCONCLUSIVE, f"digests differ, and {why}")


def _extremes_differ(a: Observation, b: Observation, criterion: Criterion, scale: float) -> bool:
    # Of complex numbers these are extremes of their parts, and a number is larger than a part of it by so much at most.
    size = (a.abs_max or 0.0) * (math.sqrt(2) if kind_of(a.dtype) == COMPLEX else 1)
    rtol, atol = EXACT if criterion.is_bitwise else criterion.tolerance(a.dtype, b.dtype, scale=max(size, scale))
    most = (atol + rtol * size) * _SLACK
    ends = ((a.min, b.min), (a.max, b.max))
    return any(left is not None and right is not None and abs(left - right) > most for left, right in ends)
