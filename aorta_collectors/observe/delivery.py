"""Steps that are over on their way to the sink: in order, each once its results have arrived from the devices."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aorta_collectors.observe.in_flight import InFlight
from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.reader import Reader
from aorta_collectors.observe.step_trace import Outcome, StepTrace
from aorta_collectors.observe.trace import Mark

# Steps whose results have not arrived: normally one, since they are read a step late.
_MOST_WAITING = 2
# For those of the last ones, in seconds: a process that is told to end must not wait for a device that hangs.
_LAST_WAIT_S = 10.0


class Past(NamedTuple):
    """A step that is over.

    Attributes:
        outcome: Tells what became of its gradients, once its observations can be read.
        inside: What was found in the backward pass of compiled code, or None.
        evaluates: Whether it ran where no gradients are recorded.
        evaluations: Steps so far that did, this one included.
    """

    number: int
    flight: InFlight
    marks: Mapping[int, Mark]
    outcome: Callable[[Sequence[Observation]], Outcome]
    inside: Any
    evaluates: bool = False
    evaluations: int = 0


class Delivery:
    """Hands steps on.

    Args:
        observed: Gets each step.
        unscanned: Gives the parameters that are not looked at.
    """

    def __init__(
        self, reader: Reader, observed: Callable[[StepTrace], None], unscanned: Callable[[], Sequence[str]]
    ) -> None:
        self._reader = reader
        self._observed = observed
        self._unscanned = unscanned
        self._waiting: deque[Past] = deque()

    def add(self, step: Past) -> None:
        if len(step.flight):
            self._waiting.append(step)
        self._deliver(until=0.0)

    def finish(self) -> None:
        """Wait for what is still on its way. What does not come is counted as passed over."""
        self._deliver(until=time.monotonic() + _LAST_WAIT_S)
        while self._waiting:
            self._reader.pass_over(f"(step {self._waiting.popleft().number})", "never arrived from the device")

    def _deliver(self, until: float) -> None:
        while self._waiting and self._has_arrived(self._waiting[0].flight, until):
            past = self._waiting.popleft()
            observations, kept = past.flight.settle()
            if kept:
                self._reader.keep_nothing()
            outcome = past.outcome(observations)
            unscanned = self._unscanned()
            self._observed(
                StepTrace(
                    past.number,
                    observations,
                    past.marks,
                    outcome,
                    kept,
                    past.inside,
                    unscanned,
                    evaluates=past.evaluates,
                    evaluations=past.evaluations,
                )
            )

    def _has_arrived(self, flight: InFlight, until: float) -> bool:
        """Whether what was read is there; the oldest of several steps is waited for, however long it takes."""
        while not flight.is_ready():
            if len(self._waiting) > _MOST_WAITING and not self._reader.is_capturing:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True
