"""Closer looks at bricks, taken together brick by brick: what dominated, and which kernels took the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aorta_collectors.analysis.numerics.processes import Processes
from aorta_collectors.analysis.numerics.tables import Lines, json_object, number

#: What a breakdown tells the time of, without "_us".
CATEGORIES = ("compute", "futex", "mmap", "ioctl", "read", "write", "other")
_KERNELS = 20
_SENTENCES = 20
_COLUMNS = "step, layer, direction, reason, value, threshold, brick_us, kernels, breakdown, unavailable"


@dataclass(frozen=True)
class Kernel:
    """An operation or kernel inside a brick, in all looks together."""

    name: str
    calls: int
    self_us: float
    device_us: float | None


@dataclass(frozen=True)
class Escalated:
    """All looks at one brick.

    Attributes:
        looks: How many.
        reasons: unstable, inefficient, with the worst value and what it was held against.
        longest_us: Of the brick, in the looks.
        dominant: The category that most looks found to be the largest; empty where nothing could tell.
        shares: Part of the looks' time by category, over the threads; empty likewise.
        mean_us: The same in microseconds of one look, which lasts a step.
        overhead_percent: Mean part of the main thread's time in system calls.
        sources: What told that: strace, perf, proc.
        kernels: The longest first.
        unavailable: What could not be measured, and why.
        steps: The first looks' steps.
    """

    layer: str
    direction: str
    looks: int
    reasons: Mapping[str, tuple[float, float]]
    longest_us: float
    dominant: str
    shares: Mapping[str, float]
    mean_us: Mapping[str, float]
    overhead_percent: float | None
    sources: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    unavailable: tuple[str, ...]
    steps: tuple[int, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.layer, self.direction


@dataclass
class _Seen:
    layer: str
    direction: str
    looks: int = 0
    reasons: dict[str, tuple[float, float]] = field(default_factory=dict)
    longest_us: float = 0.0
    dominant: Counter[str] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    overheads: list[float] = field(default_factory=list)
    sources: dict[str, None] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    unavailable: dict[str, None] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    last: tuple[str, int] | None = None


def escalated_of(lines: Lines, processes: Processes) -> tuple[Escalated, ...]:
    """The brick that was looked at most often first."""
    found: dict[tuple[str, str], _Seen] = {}
    for process in processes.counted:
        if not process.sizes.get("escalations"):
            continue
        lines.look_at(process)
        for batch in lines.batches(f"SELECT {_COLUMNS} FROM escalations ORDER BY step", size=500):
            for row in batch:
                if isinstance(row[1], str):
                    seen = found.setdefault((row[1], str(row[2])), _Seen(row[1], str(row[2])))
                    _take_in(seen, process.stem, row)
    return tuple(sorted(map(_escalated, found.values()), key=lambda each: -each.looks))


def _take_in(seen: _Seen, process: str, row: Sequence[Any]) -> None:
    step, _, _, reason, value, threshold, brick_us, kernels, breakdown, unavailable = row
    if isinstance(reason, str) and value is not None:
        before = seen.reasons.get(reason)
        worse = before is None or (value > before[0] if reason == "unstable" else value < before[0])
        if worse:
            seen.reasons[reason] = (value, threshold or 0.0)
    if seen.last == (process, step):
        return  # one look for two reasons has a line for each
    seen.last = process, step
    seen.looks += 1
    seen.longest_us = max(seen.longest_us, brick_us or 0.0)
    if len(seen.steps) < _SENTENCES:
        seen.steps.append(step)
    for text in kernels or ():
        _add_kernel(seen, json_object(text))
    split = json_object(breakdown)
    if split:
        seen.sources[str(split.get("source"))] = None
        seen.dominant[str(split.get("dominant"))] += 1
        seen.overheads.append(number(split.get("overhead_percent")))
        for category in CATEGORIES:
            seen.times[category] += number(split.get(f"{category}_us"))  # type: ignore[assignment]
    for sentence in unavailable or ():
        if len(seen.unavailable) < _SENTENCES:
            seen.unavailable[str(sentence)] = None


def _add_kernel(seen: _Seen, found: Mapping[str, Any]) -> None:
    name = found.get("name")
    if not isinstance(name, str):
        return
    before = seen.kernels.get(name) or Kernel(name, 0, 0.0, None)
    device = found.get("device_us")
    seen.kernels[name] = Kernel(
        name,
        before.calls + round(number(found.get("calls"))),
        before.self_us + number(found.get("self_us")),
        before.device_us if device is None else (before.device_us or 0.0) + number(found.get("device_us")),
    )


def _escalated(seen: _Seen) -> Escalated:
    total = sum(seen.times.values())
    kernels = sorted(seen.kernels.values(), key=lambda kernel: -max(kernel.self_us, kernel.device_us or 0.0))
    return Escalated(
        seen.layer,
        seen.direction,
        seen.looks,
        seen.reasons,
        seen.longest_us,
        max(seen.dominant, key=seen.dominant.__getitem__, default=""),
        {category: seen.times[category] / total for category in CATEGORIES} if total else {},
        {category: seen.times[category] / len(seen.overheads) for category in CATEGORIES} if total else {},
        sum(seen.overheads) / len(seen.overheads) if seen.overheads else None,
        tuple(seen.sources),
        tuple(kernels[:_KERNELS]),
        tuple(seen.unavailable),
        tuple(seen.steps),
    )
