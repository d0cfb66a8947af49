"""Which bricks are worth a closer look: those whose time varies, and those far under the roofline."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter_ns
from typing import NamedTuple, Protocol

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.profile.bricks import Reading

UNSTABLE, INEFFICIENT = "unstable", "inefficient"
_WARM_UP_STEPS = 3
_LEAST_CALLS = 10
_AGAIN_STEPS = 100
# Of a brick below either, a variation of 15 % is what the machine's clock and other processes make of any.
_LEAST_US = 50.0
_LEAST_SHARE = 0.01
# Going through the table may take this long, and of a long run this part of its time: not after each step then.
_FREE_NS = 200_000_000
_SHARE = 0.01


class Table(Protocol):
    """The bricks' times."""

    def readings(self, least_calls: int, least_us: float, least_total_us: float) -> Iterable[Reading]:
        """Of each pass of each brick that has so many calls, of so many microseconds on average and together."""


class Trigger(NamedTuple):
    """A reason to look at one pass of a brick.

    Attributes:
        reason: "unstable" or "inefficient".
        value: The coefficient of variation, or the efficiency.
        threshold: What it was held against.
        efficiency: In any case, where it is known.
        is_over_budget: Whether that is below its threshold.
    """

    layer: str
    direction: str
    reason: str
    value: float
    threshold: float
    efficiency: float | None
    is_over_budget: bool


class Triggers:
    """Finds them. Each reason of a pass of a brick comes once in 100 steps.

    The first 3 steps count for nothing, nor does a brick with fewer than 10 calls. One that takes less than 50 us, or
    in all its calls less than 1 % of the step, is not worth a look.
    """

    def __init__(self, config: Config) -> None:
        self._cv = config.cv_threshold
        self._efficiency = config.efficiency_threshold
        self._last: dict[tuple[str, str, str], tuple[int, int]] = {}  # the step, and the calls by then
        self._steps = 0
        self._step_us = 0.0
        self._spent_ns = 0
        self._began_ns = perf_counter_ns()

    def found(self, table: Table, step: int, step_us: float) -> list[Trigger]:
        """After step `step`, which took `step_us` microseconds and counts."""
        self._steps += 1
        self._step_us += step_us
        began_ns = perf_counter_ns()
        may_take_ns = _FREE_NS + _SHARE * (began_ns - self._began_ns)
        if self._steps <= _WARM_UP_STEPS or self._spent_ns > may_take_ns:
            return []
        found = [
            trigger
            for reading in table.readings(_LEAST_CALLS, _LEAST_US, _LEAST_SHARE * self._step_us)
            for trigger in self._of(reading)
            if self._is_due(trigger, step, reading.calls)
        ]
        self._spent_ns += perf_counter_ns() - began_ns
        return found

    def _of(self, reading: Reading) -> Iterable[Trigger]:
        layer, direction, _, _, cv, efficiency = reading
        is_over = efficiency is not None and efficiency < self._efficiency
        if cv is not None and cv > self._cv:
            yield Trigger(layer, direction, UNSTABLE, cv, self._cv, efficiency, is_over)
        if efficiency is not None and is_over:
            yield Trigger(layer, direction, INEFFICIENT, efficiency, self._efficiency, efficiency, is_over)

    def _is_due(self, trigger: Trigger, step: int, calls: int) -> bool:
        key = (trigger.layer, trigger.direction, trigger.reason)
        last = self._last.get(key)
        # One that is not timed any more, such as in a CUDA graph, is as it was.
        if last is not None and (step - last[0] < _AGAIN_STEPS or calls == last[1]):
            return False
        self._last[key] = step, calls
        return True
