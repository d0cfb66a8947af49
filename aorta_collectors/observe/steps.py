"""From step to step: what was seen in one is handed on when the next begins, and what comes then belongs to that."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.compiling.inside import InsideWatch
from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.delivery import Delivery, Past
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.observation import Moments, Sink
from aorta_collectors.observe.precision import squares_are_exact
from aorta_collectors.observe.reader import Reader
from aorta_collectors.observe.trace import CallTrace
from aorta_collectors.observe.training import TrainingWatch


class Steps:
    """The steps of one observer.

    Args:
        batch_id: Gives the number of the batch that went into the model last.
        always_ranged: Whether ranges of clean tensors are wanted in every step, whatever the sink says.
        is_elsewhere: Whether this is a fork of the observed process, whose steps are nobody's.
    """

    def __init__(
        self,
        clock: StepClock,
        moments: Moments,
        cost: Cost,
        reader: Reader,
        training: TrainingWatch,
        calls_traced: CallTrace | None,
        inside: InsideWatch | None,
        sink: Sink,
        delivery: Delivery,
        failures: Failures,
        *,
        batch_id: Callable[[], int | None],
        always_ranged: bool,
        is_elsewhere: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self.moments = moments
        self._cost = cost
        self.reader = reader
        self._training = training
        self.calls_traced = calls_traced
        self._inside = inside
        self._sink = sink
        self._delivery = delivery
        self._failures = failures
        self._batch_id = batch_id
        self._always_ranged = always_ranged
        self._is_elsewhere = is_elsewhere

    def begin(self) -> None:
        """A step begins, and what was seen in the one before is handed on."""
        guarded = self._failures.guarded
        self.hand_on()
        self._cost.end_step(perf_counter())
        self._clock.begin()
        guarded(self._sink.entered, self._clock.step)
        guarded(self._ask_for_ranges)
        self.go_on()
        self._training.begin_step()

    def go_on(self) -> None:
        """Have what comes belong to the step at hand, and to what is known of it by now."""
        self.moments.begin_step(self._clock.step, self._batch_id(), self._training.num_steps)

    def hand_on_within(self) -> None:
        """The same inside of a hook, whose own time does not count this."""
        began = perf_counter()
        self.hand_on()
        self._cost.hook_s -= perf_counter() - began

    def hand_on(self) -> None:
        """What was seen so far is over: it goes to the sink once it has arrived. Does nothing in a capture."""
        if self.reader.is_capturing:
            return
        began = perf_counter()
        self._failures.guarded(self._hand_on)
        self._cost.drained(perf_counter() - began)

    def finish(self) -> None:
        """No step comes after the one at hand: wait for all that is on its way."""
        self.hand_on()
        self._failures.guarded(self._delivery.finish)
        self._cost.finish(perf_counter())

    @property
    def optimizer_steps(self) -> int:
        """Taken so far."""
        return self._training.num_steps

    def count_optimizer_steps(self, number: int) -> None:
        """Some ran in a graph, where no hook is called; or, negative, were not taken though their hooks were called."""
        self._training.count_steps(number)
        self.moments.optimizer_stepped(self._training.num_steps)

    def _ask_for_ranges(self) -> None:
        wanted = self._always_ranged or self._sink.ranges_wanted(self._clock.step)
        self.reader.ranged = wanted or not squares_are_exact()

    def _hand_on(self) -> None:
        flight = self.reader.take()
        marks = self.calls_traced.exchange_marks({}) if self.calls_traced is not None else {}
        outcome = self._training.take()
        inside: Any = self._inside.backward if self._inside is not None else None
        if self._inside is not None:
            self._inside.begin_step()
        if not self._is_elsewhere():
            clock = self._clock
            past = Past(clock.step, flight, marks, outcome, inside, clock.evaluates, clock.evaluations)
            self._delivery.add(past)
