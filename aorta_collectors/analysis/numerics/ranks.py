"""The ranks of a trial beside each other: whose steps are long, and who waits for whom in collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.numerics.phases import STEP
from aorta_collectors.analysis.numerics.processes import Processes


@dataclass(frozen=True)
class OfRank:
    """One process.

    Attributes:
        label: Such as "rank 3".
        device: Such as cuda:0.
        steps: Begun.
        status: running, ended or complete.
        step_ms: Mean of its measured steps.
        collective_ms: In collectives, in a step; None where no step was measured. In the mean of all steps: also of
            those whose times do not count.
        busy_ms: The rest of the step.
        overhead: Part of its steps' time that observing took.
    """

    label: str
    rank: int
    host: str
    pid: int
    device: str | None
    steps: int
    status: str
    step_ms: float | None
    step_p50_ms: float | None
    step_p99_ms: float | None
    collective_ms: float | None
    busy_ms: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    mfu: float | None
    memory_peak_mb: float | None
    overhead: float | None


@dataclass(frozen=True)
class Collective:
    """One operation, over all ranks.

    Attributes:
        calls, bytes, total_us: Of all ranks together.
        per_step_us: Of one rank, in a step; None where there was none.
        bytes_per_s: Of one rank, while it was in there.
        least_us, most_us: Of the rank that spent least there, and of that which spent most.
    """

    operation: str
    source: str
    calls: int
    bytes: int
    total_us: float
    per_step_us: float | None
    bytes_per_s: float | None
    least_us: float
    most_us: float


@dataclass(frozen=True)
class Imbalance:
    """What ranks lose by waiting for the slowest one.

    Attributes:
        slowest: Label of the rank that is busy longest.
        waits_most: Of the one that spends most time in collectives.
        busy_ms: Of the slowest, and of the median rank, in a step.
        lost: What the others wait for it, as a part of the step: (its busy time - the others' mean) / step.
    """

    slowest: str
    waits_most: str
    busiest_ms: float
    median_busy_ms: float
    lost: float


def ranks_of(processes: Processes) -> tuple[OfRank, ...]:
    """One for each process, in the order of ranks."""
    return tuple(_rank(label, summary) for label, summary in zip(processes.labels, processes.summaries, strict=True))


def _rank(label: str, summary: Mapping[str, Any]) -> OfRank:
    step = summary.get("phases", {}).get(STEP) or {}
    steps, metrics = step.get("count", 0), summary.get("step_metrics", {})
    mean = step["total_ms"] / steps if steps else None
    waited = sum(entry["total_us"] for entry in summary.get("collectives", ())) / 1000
    collective = waited / summary["steps_seen"] if steps and summary["steps_seen"] else None
    return OfRank(
        label,
        summary["rank"],
        summary["host"],
        summary["pid"],
        summary.get("device"),
        summary["steps_seen"],
        summary["status"],
        mean,
        step.get("p50_ms"),
        step.get("p99_ms"),
        collective,
        None if mean is None or collective is None else max(0.0, mean - collective),
        metrics.get("tokens_per_s"),
        metrics.get("samples_per_s"),
        metrics.get("mfu"),
        metrics.get("memory_peak_mb"),
        _part(summary.get("overhead", {}).get("share_of_step")),
    )


def _part(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def collectives_of(processes: Processes) -> tuple[Collective, ...]:
    """The one that takes longest first."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for summary in processes.summaries:
        for entry in summary.get("collectives", ()):
            found.setdefault((entry["operation"], entry.get("source", "")), []).append(entry)
    steps = sum(summary["steps_seen"] for summary in processes.summaries)
    absent = len(processes.counted)
    made = [_collective(*key, entries, steps, absent > len(entries)) for key, entries in found.items()]
    return tuple(sorted(made, key=lambda collective: -collective.total_us))


def _collective(
    operation: str, source: str, entries: Sequence[Mapping[str, Any]], steps: int, some_absent: bool
) -> Collective:
    total, size = sum(entry["total_us"] for entry in entries), sum(entry["bytes"] for entry in entries)
    return Collective(
        operation,
        source,
        sum(entry["calls"] for entry in entries),
        size,
        total,
        total / steps if steps else None,
        size / (total / 1e6) if total else None,
        0.0 if some_absent else min(entry["total_us"] for entry in entries),
        max(entry["total_us"] for entry in entries),
    )


def imbalance_of(ranks: Sequence[OfRank]) -> Imbalance | None:
    """None where one rank ran alone, or no rank communicated."""
    known = [rank for rank in ranks if rank.busy_ms is not None and rank.step_ms]
    if len(known) < 2 or not any(rank.collective_ms for rank in known):
        return None
    by_busy = sorted(known, key=lambda rank: rank.busy_ms or 0.0)
    others = sum(rank.busy_ms or 0.0 for rank in by_busy[:-1]) / (len(known) - 1)
    mean_step = sum(rank.step_ms or 0.0 for rank in known) / len(known)
    busiest = by_busy[-1].busy_ms or 0.0
    return Imbalance(
        by_busy[-1].label,
        max(known, key=lambda rank: rank.collective_ms or 0.0).label,
        busiest,
        by_busy[(len(known) - 1) // 2].busy_ms or 0.0,
        min(1.0, (busiest - others) / mean_step),
    )
