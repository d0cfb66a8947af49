"""Energy of a trial: each machine's or device's once, however many ranks have read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.numerics.processes import Processes
from aorta_collectors.analysis.numerics.tables import Lines


@dataclass(frozen=True)
class Meter:
    """What was read of one machine (rapl) or device.

    Attributes:
        of: Host, and the device where the source is of a device.
        seconds: From the first step to the last; None where that is not known.
    """

    of: str
    source: str
    joules: float
    seconds: float | None


@dataclass(frozen=True)
class Energy:
    """Attributes:
    joules, watts: Of all meters together; None where nothing was readable.
    steps: Of the rank that had most.
    tokens, samples: In the steps of all ranks; None where they are not known, or no energy is.
    unavailable: What was not read, and why, with the number of ranks that said so.
    """

    joules: float | None
    watts: float | None
    meters: tuple[Meter, ...]
    steps: int
    tokens: int | None
    samples: int | None
    unavailable: tuple[tuple[str, int], ...]

    @property
    def joules_per_step(self) -> float | None:
        return self._per(self.steps)

    @property
    def joules_per_token(self) -> float | None:
        return self._per(self.tokens)

    @property
    def joules_per_sample(self) -> float | None:
        return self._per(self.samples)

    def _per(self, count: int | None) -> float | None:
        return self.joules / count if self.joules is not None and count else None


def energy_of(lines: Lines, processes: Processes) -> Energy:
    """Several ranks that have read the same meter, at nearly the same time, count once: the largest reading."""
    meters: dict[tuple[str, str], Meter] = {}
    unavailable: dict[str, int] = {}
    tokens = samples = steps = 0
    knows_tokens = knows_samples = False
    readable = any((summary.get("energy") or {}).get("joules") is not None for summary in processes.summaries)
    for process in processes.counted:
        found: Mapping[str, Any] = process.summary.get("energy") or {}
        for reason in found.get("unavailable", ()):
            unavailable[reason] = unavailable.get(reason, 0) + 1
        steps = max(steps, process.summary["steps_seen"])
        if not readable:
            continue  # nothing to divide
        lines.look_at(process)
        ((first, last, of_tokens, of_samples),) = lines.rows(
            "SELECT min(start_ns), max(start_ns + step_ms * 1e6), sum(tokens)::BIGINT, sum(samples)::BIGINT FROM steps"
        )
        tokens, knows_tokens = tokens + (of_tokens or 0), knows_tokens or of_tokens is not None
        samples, knows_samples = samples + (of_samples or 0), knows_samples or of_samples is not None
        if found.get("joules") is not None:
            seconds = (last - first) / 1e9 if first is not None and last is not None and last > first else None
            _take_in(meters, process.summary, found, seconds)
    joules = sum(meter.joules for meter in meters.values()) if meters else None
    powers = [meter.joules / meter.seconds for meter in meters.values() if meter.seconds]
    return Energy(
        joules,
        sum(powers) if meters and len(powers) == len(meters) else None,
        tuple(meters.values()),
        steps,
        tokens if knows_tokens else None,
        samples if knows_samples else None,
        tuple(unavailable.items()),
    )


def _take_in(
    meters: dict[tuple[str, str], Meter], summary: Mapping[str, Any], found: Mapping[str, Any], seconds: float | None
) -> None:
    source = str(found.get("source") or "-")
    of_device = source != "rapl" and summary.get("device")
    of = f"{summary['host']}, {summary['device']}" if of_device else str(summary["host"])
    before = meters.get((of, source))
    if before is None or found["joules"] > before.joules:
        meters[of, source] = Meter(of, source, found["joules"], seconds)
