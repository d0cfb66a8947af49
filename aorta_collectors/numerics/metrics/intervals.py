"""How long steps and their phases take, and what they get done: percentiles over the run and over its intervals.

Steps in which operations are counted are left out, since counting slows them, and so are evaluations, which would mix
with the training steps around them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.observe.cost import Histogram

STEP = "step"
_QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_MOST_INTERVALS = 100  # kept for the summary: the last ones
_MOST_PHASES_TOLD = 3
_NS = 1e-9


class Intervals(Part):
    """Takes in each step's phases, and the lines of steps that parts before it have made.

    Args:
        length: Steps of an interval.
        say: Told a line at the end of each interval.
    """

    def __init__(self, length: int, say: Callable[[str], None]) -> None:
        self._length = length
        self._say = say
        self._whole: dict[str, Histogram] = {}
        self._current: dict[str, Histogram] = {}
        self._first_step = 0
        self._num_steps = 0
        self._throughput = _Throughput()
        self._intervals: deque[dict[str, Any]] = deque(maxlen=_MOST_INTERVALS)

    def step_ended(self, trace: StepTrace) -> None:
        self._first_step = self._first_step or trace.step
        self._num_steps += 1
        own_ns = own_time_ns(trace)
        if counts(trace):
            for phases in (self._whole, self._current):
                for name, duration_ns in (*trace.phases_ns.items(), (STEP, own_ns)):
                    phases.setdefault(name, Histogram()).add(duration_ns * _NS)
        for line in (*trace.past_metrics, trace.metrics):
            if line is not None:
                self._throughput.add(line)
        if self._num_steps == self._length:
            self._end_interval(trace.step)

    def _end_interval(self, last_step: int) -> None:
        phases = {name: _percentiles(histogram) for name, histogram in self._current.items()}
        if phases:
            rates = self._throughput.rates()
            self._intervals.append({"first_step": self._first_step, "last_step": last_step, **rates, "phases": phases})
            self._say(_told(self._first_step, last_step, rates, phases, self._current))
        self._current = {}
        self._throughput = _Throughput()
        self._first_step = self._num_steps = 0

    def fields(self) -> Mapping[str, Any]:
        phases = {
            name: {
                "count": histogram.count,
                "total_ms": round(histogram.total * 1e3, 6),
                **_percentiles(histogram),
            }
            for name, histogram in self._whole.items()
        }
        return {"phases": phases, "intervals": list(self._intervals)}


class _Throughput:
    """What the steps of an interval work on. From a device the line of the last one comes with the next interval."""

    def __init__(self) -> None:
        self._amounts = {"samples": 0, "tokens": 0}
        self._seconds = 0.0

    def add(self, line: Mapping[str, Any]) -> None:
        if line["kind"] != "evaluation" and not line["is_counted"]:
            self._seconds += line["step_ms"] / 1e3
            for name in self._amounts:
                self._amounts[name] += line[name] or 0

    def rates(self) -> dict[str, float | None]:
        """A second; None of what the inputs did not tell."""
        return {
            f"{name}_per_s": amount / self._seconds if amount and self._seconds else None
            for name, amount in self._amounts.items()
        }


def own_time_ns(trace: StepTrace) -> int:
    """The step's own time, less what observing took."""
    return max(trace.end_ns - trace.start_ns - trace.overhead_ns, 0)


def counts(trace: StepTrace) -> bool:
    """Whether the step's durations tell what steps take."""
    return not trace.is_counted and trace.kind != "evaluation"


def _percentiles(histogram: Histogram) -> dict[str, float | None]:
    seconds = {name: histogram.quantile(share) for name, share in _QUANTILES.items()}
    return {name: None if value is None else round(value * 1e3, 6) for name, value in seconds.items()}


def _told(
    first_step: int,
    last_step: int,
    rates: Mapping[str, float | None],
    phases: Mapping[str, Mapping[str, float | None]],
    totals: Mapping[str, Histogram],
) -> str:
    """The line of an interval: throughput, the step's percentiles, and those of the phases that took most of it."""
    units = {"tokens_per_s": "tok/s", "samples_per_s": "samples/s"}
    told = [f"{rates[name]:.5g} {unit}" for name, unit in units.items() if rates[name] is not None]
    longest = sorted((name for name in phases if name != STEP), key=lambda name: -totals[name].total)
    parts = [_of(name, phases[name]) for name in (STEP, *longest[:_MOST_PHASES_TOLD])]
    return f"steps {first_step}-{last_step}: {', '.join([*told[:1], 'p50/p95/p99 ms'])}: {', '.join(parts)}"


def _of(name: str, percentiles: Mapping[str, float | None]) -> str:
    return name + " " + "/".join(f"{value or 0.0:.3g}" for value in percentiles.values())
