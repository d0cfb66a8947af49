"""How long steps, their phases and the named steps took, over all ranks of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.numerics.spans.span import PHASES

STEP = "step"
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Phase:
    """One phase of a step, or the whole of it.

    Attributes:
        count: Steps that had it, on the rank that had it most often.
        mean_ms: Of all ranks.
        p50_ms, p95_ms, p99_ms: Of the rank on which it takes longest.
        share: Part of the steps' time, of all ranks; None where that is not known.
    """

    name: str
    count: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    share: float | None


@dataclass(frozen=True)
class NamedStep:
    """One of the named steps, such as EMBED; as `Phase`, in microseconds.

    Attributes:
        per_step: How often in a step.
    """

    name: str
    direction: str
    count: int
    per_step: float | None
    mean_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    share: float | None


def steps_ms(summaries: Sequence[Summary]) -> float:
    """Milliseconds that the measured steps of all ranks took together; 0 where none was measured."""
    return sum(float(summary.get("phases", {}).get(STEP, {}).get("total_ms", 0.0)) for summary in summaries)


def steps_counted(summaries: Sequence[Summary]) -> int:
    """Steps of all ranks together: those that were measured, or else those that were begun."""
    measured = sum(int(summary.get("phases", {}).get(STEP, {}).get("count", 0)) for summary in summaries)
    return measured or sum(int(summary["steps_seen"]) for summary in summaries)


def phases_of(summaries: Sequence[Summary]) -> tuple[Phase, ...]:
    """The step first, then its phases in their order, then what other names there are."""
    found = [summary.get("phases", {}) for summary in summaries]
    names = {name: None for phases in found for name in phases}
    order = [name for name in (STEP, *PHASES) if name in names]
    whole = steps_ms(summaries)
    return tuple(
        _phase(name, [phases[name] for phases in found if name in phases], whole)
        for name in [*order, *(name for name in names if name not in order)]
    )


def _phase(name: str, found: Sequence[Mapping[str, Any]], whole_ms: float) -> Phase:
    total = sum(entry["total_ms"] for entry in found)
    count = sum(entry["count"] for entry in found)
    slowest = max(found, key=lambda entry: entry["total_ms"] / max(1, entry["count"]))
    return Phase(
        name,
        max(entry["count"] for entry in found),
        total / count if count else None,
        slowest["p50_ms"],
        slowest["p95_ms"],
        slowest["p99_ms"],
        total / whole_ms if whole_ms else None,
    )


def named_steps_of(summaries: Sequence[Summary]) -> tuple[NamedStep, ...]:
    """In the order in which they were first seen."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for summary in summaries:
        for entry in summary.get("trace_steps", ()):
            found.setdefault((entry["name"], entry["direction"]), []).append(entry)
    whole_us, steps = steps_ms(summaries) * 1000, steps_counted(summaries)
    return tuple(_named(*key, entries, whole_us, steps) for key, entries in found.items())


def _named(name: str, direction: str, found: Sequence[Mapping[str, Any]], whole_us: float, steps: int) -> NamedStep:
    total = sum(entry["total_us"] for entry in found)
    count = sum(entry["count"] for entry in found)
    slowest = max(found, key=lambda entry: entry["total_us"] / max(1, entry["count"]))
    return NamedStep(
        name,
        direction,
        count,
        count / steps if steps else None,
        total / count if count else None,
        slowest["p50_us"],
        slowest["p95_us"],
        slowest["p99_us"],
        total / whole_us if whole_us else None,
    )
