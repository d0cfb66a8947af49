"""How bytes, trends and phases of memory are written wherever a person reads of them."""

from __future__ import annotations

from collections.abc import Sequence

from aorta_collectors.analysis.bundles.growth import Growth, OfMeasure
from aorta_collectors.analysis.bundles.memory_compare import MeasurePair
from aorta_collectors.analysis.bundles.memory_run import PRIVATE
from aorta_collectors.analysis.bundles.trend import LEAST, Trend

_NOWHERE = "no phase changes enough by itself to say where"
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size(count: float | None) -> str:
    """Such as 512 B, 1.50 MiB or 12.3 GiB; "-" for None."""
    if count is None:
        return "-"
    amount, unit = float(count), "B"
    for larger in _UNITS:
        if abs(amount) < 1024:
            break
        amount, unit = amount / 1024, larger
    if unit == "B":
        return f"{amount:.0f} B"
    return f"{amount:.{2 if abs(amount) < 10 else 1 if abs(amount) < 100 else 0}f} {unit}"


def change(count: float | None) -> str:
    """The same with a sign in any case but of 0."""
    return f"+{size(count)}" if count is not None and count > 0 else size(count)


def slope(found: Trend | None) -> str:
    """Such as "+10.0 MiB (+9.8 MiB to +10.2 MiB)", a step."""
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{change(found.slope)} (too few steps)"
    return f"{change(found.slope)} ({change(found.low)} to {change(found.high)})"


def verdict(found: OfMeasure) -> str:
    """What its trend comes to, in a word or two."""
    trend = found.lowest.trend
    if found.grows:
        if found.measure.name == f"{PRIVATE} reserved":
            return "retained capacity grows"
        return "capacity grows" if found.measure.is_capacity else "grows"
    if found.stopped:
        return "grew, and stopped"
    if trend is None or trend.low is None:
        return "too few steps"
    if trend.shrinks:
        return "shrinks"
    return "steady" if trend.slope == 0 else "no growth that counts"


def unjudged(found: Growth) -> str:
    """Why nothing can be said of growth."""
    count = len(found.course.counted)
    if not count:
        return "no step of a model was seen"
    return f"{count} step(s) count, and it takes {LEAST} to tell growth from chance"


def where(found: OfMeasure) -> str:
    """Which phase the growth is in, as far as that can be told."""
    names = [phase.name for phase in found.growing]
    if not names:
        return _NOWHERE
    if len(names) == 1:
        others = (
            "the others change little" if found.certain else "what the others take, they give back among themselves"
        )
        return f"in {names[0]}; {others}"
    return _one_of(names, any(phase.total < 0 for phase in found.growing))


def where_beyond(found: MeasurePair) -> str:
    """The same of growth that the baseline does not have."""
    phase = found.phase
    if phase is None:
        gives_back = any(min(each.baseline.total, each.candidate.total) < 0 for each in found.growing)
        return _one_of([each.name for each in found.growing], gives_back) if found.growing else _NOWHERE
    took, baseline = (change(side.total / side.times) for side in (phase.candidate, phase.baseline))
    return f"in {phase.name}: {took} a step on average, against {baseline} in the baseline"


def _one_of(names: Sequence[str], gives_back: bool) -> str:
    if gives_back:
        return f"which of these cannot be told, since one takes what another gives back: {'; '.join(names)}"
    return f"in several of them: {'; '.join(names)}"
