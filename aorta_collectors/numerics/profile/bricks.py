"""The table of bricks: what each module's calls took, in each direction, and how near that is to the roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.profile.bound import Judgement, Work, judged
from aorta_collectors.numerics.profile.brick_times import BrickTimes, with_self_times
from aorta_collectors.numerics.profile.roofline import Roofline

_MOST_ROWS = 2000
_WARM_UP_STEPS = 3  # of which times count, but for how much they vary
_US = 1e6
_NOTHING: Mapping[str, Any] = {}


class Reading(NamedTuple):
    """What makes one pass of a brick worth a closer look, as in its row."""

    layer: str
    direction: str
    calls: int
    mean_us: float
    cv: float | None
    efficiency: float | None


class BrickTable(Part):
    """Takes in the timings of each step. Those of steps in which operations were counted wait for want of others.

    Args:
        work: What a call of a layer, in a direction, computes itself; None where it is not known.
        roofline: What the machine reaches; None where it was not measured.
        units: Further fields of a layer's forward row.
        escalations: Closer looks that were taken at a layer, in a direction.
    """

    def __init__(
        self,
        config: Config,
        work: Callable[[str, str], Work | None] = lambda layer, direction: None,
        roofline: Callable[[], Roofline | None] = lambda: None,
        units: Callable[[str], Mapping[str, Any]] = lambda layer: _NOTHING,
        escalations: Callable[[str, str], int] = lambda layer, direction: 0,
    ) -> None:
        self._work = work
        self._roofline = roofline
        self._sees_device = config.profile == "immediate"
        self._units = units
        self._escalations = escalations
        self._bricks: dict[tuple[str, str], Brick] = {}  # in the order of their first call
        self._times: dict[tuple[str, str], BrickTimes] = {}
        self._counted: dict[tuple[str, str], BrickTimes] = {}
        self._steps = 0  # whose times count
        self._most = 2 * _MOST_ROWS

    def wants(self, brick: Brick) -> bool:
        return False

    def step_ended(self, trace: StepTrace) -> None:
        tables = self._counted if trace.is_counted else self._times
        self._steps += not trace.is_counted
        warms_up = self._steps <= _WARM_UP_STEPS
        known = self._bricks
        fresh = []
        for timing, seconds, self_seconds in with_self_times(trace.timings):
            key = (timing.brick.layer, timing.direction)
            times = tables.get(key)
            if times is None:
                times = tables[key] = BrickTimes()
                if key not in known:
                    fresh.append((timing.start_ns, timing.brick.number, key, timing.brick))
            times.add(seconds, self_seconds, warms_up=warms_up)
        # A module ends after its parts, but was called before them.
        for _, _, key, brick in sorted(fresh, key=lambda found: found[:2]):
            known.setdefault(key, brick)
        if len(known) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Let go of modules that are gone, but for those that took longest: a program may make ever new models."""
        gone = [key for key, brick in self._bricks.items() if brick.module() is None]
        for key in sorted(gone, key=lambda key: self._of(key).self_s, reverse=True)[_MOST_ROWS:]:
            for table in (self._bricks, self._times, self._counted):
                table.pop(key, None)
        self._most = max(self._most, 2 * len(self._bricks))

    def _of(self, key: tuple[str, str]) -> BrickTimes:
        return self._times.get(key) or self._counted[key]

    def readings(self, least_calls: int, least_us: float, least_total_us: float) -> Iterator[Reading]:
        """Of the bricks with so many calls that count, of so many microseconds on average and together.

        Cheap enough to be asked for after each step.
        """
        for key in list(self._bricks):
            times = self._times.get(key)
            if times is None:
                continue
            layer, direction = key
            total_us = times.total_s * _US
            if times.calls >= least_calls and total_us >= max(least_total_us, least_us * times.calls):
                judgement = self._judged(times, self._work(layer, direction))
                yield Reading(layer, direction, times.calls, total_us / times.calls, times.cv, judgement.efficiency)

    def rows(self) -> list[dict[str, Any]]:
        """Of all bricks, in the order of their first call; of very many, those that took longest."""
        keys = list(self._bricks)
        if len(keys) > _MOST_ROWS:
            longest = sorted(keys, key=lambda key: self._of(key).self_s, reverse=True)[:_MOST_ROWS]
            kept = set(longest)
            keys = [key for key in keys if key in kept]
        return [self._row(key) for key in keys]

    def _row(self, key: tuple[str, str]) -> dict[str, Any]:
        layer, direction = key
        brick, times = self._bricks[key], self._of(key)
        work = self._work(layer, direction)
        judgement = self._judged(times, work)
        return {
            "layer": layer,
            "module_type": brick.module_type,
            "step_name": brick.step_name,
            "direction": direction,
            "calls": times.calls,
            "total_us": _us(times.total_s),
            "self_us": _us(times.self_s),
            "mean_us": _us(times.mean_s),
            "p50_us": _us(times.quantile(0.5)),
            "p95_us": _us(times.quantile(0.95)),
            "p99_us": _us(times.quantile(0.99)),
            "cv": _rounded(times.cv),
            "flops": round(work.flops, 3) if work is not None else None,
            "bytes": round(work.bytes, 3) if work is not None else None,
            "operations": round(work.operations) if work is not None else None,
            "dtype": work.dtype if work is not None else None,
            "efficiency": _rounded(judgement.efficiency),
            "bound": judgement.bound,
            "escalations": self._escalations(layer, direction),
            **(self._units(layer) if direction == "forward" else {}),
        }

    def _judged(self, times: BrickTimes, work: Work | None) -> Judgement:
        roofline = self._roofline()
        # Work on a device of which only the launch is timed cannot be judged.
        if work is None or roofline is None or not (self._sees_device or work.seconds is not None):
            return Judgement()
        return judged(work, times.self_s / times.calls, times.least_self_s, roofline)

    def fields(self) -> Mapping[str, Any]:
        return {"bricks": self.rows()}


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * _US, 3)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 6)
