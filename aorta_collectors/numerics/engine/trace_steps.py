"""How long the named steps took: distributions by name and direction, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aorta_collectors.numerics.spans.span import BRICK_PROFILE, KERNEL_LAUNCH, Span
from aorta_collectors.observe.cost import Histogram

_KINDS = ("phase", "user", "collective")
# Of the others, those that are named steps, by kind: bricks that are no other step, and launches on a device.
_NAMED = {"brick": BRICK_PROFILE, "kernel": KERNEL_LAUNCH}
_MOST = 1000  # a program may name its own steps as it likes


class TraceSteps:
    """Takes in the spans of steps that are over."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], Histogram] = {}

    def add(self, spans: Iterable[Span], *, is_counted: bool = False) -> None:
        """
        Args:
            is_counted: Whether the step's times do not count. That is about the model: what else it has, does.
        """
        for span in spans:
            name = span.name if span.kind in _KINDS else _NAMED.get(span.kind)
            if name is None or (name == KERNEL_LAUNCH and span.name != KERNEL_LAUNCH):
                continue
            if not (is_counted and (span.layer or span.direction)):
                key = (name, span.direction)
                times = self._times.get(key)
                if times is None:
                    if len(self._times) >= _MOST:
                        continue
                    times = self._times[key] = Histogram()
                times.add(max(0, span.own_ns) * 1e-9)

    def fields(self) -> list[dict[str, Any]]:
        """As the summary has them, in the order in which they were first seen."""
        return [
            {
                "name": name,
                "direction": direction,
                "count": times.count,
                "total_us": round(times.total * 1e6, 3),
                "mean_us": round(times.total / times.count * 1e6, 3) if times.count else None,
                **{f"p{percent}_us": _microseconds(times.quantile(percent / 100)) for percent in (50, 95, 99)},
            }
            for (name, direction), times in self._times.items()
        ]


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 3)
