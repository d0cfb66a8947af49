"""From step to step: a step begins where the one before has ended, which is known when the root is called again."""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import NamedTuple, Protocol

from aorta_collectors.numerics.brick import Timing
from aorta_collectors.numerics.engine.phases import StepPhases
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.engine.told import Told
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.failures import Failures


class Sink(Protocol):
    """Where steps go. Methods run between steps, on the training thread; what they raise is only counted."""

    def attached(self, label: str) -> None:
        """A model was found. Comes once for each."""

    def entered(self, step: int) -> None:
        """Step `step` (1, 2, ...) begins: the root is about to run its forward."""

    def stepped(self, trace: StepTrace) -> None:
        """A step is over; all parts have added to it."""

    def forked(self) -> None:
        """A forked child of this process trains a model, where nothing is observed. Called in the child, once."""


class Mark(NamedTuple):
    """The end of something that a step may end with: its forward pass, its backward pass, its optimizer.

    Attributes:
        spent_s: What observing had taken by then.
        lamport: The logical clock.
    """

    at_ns: int
    spent_s: float
    lamport: int


class Steps:
    """The steps of one engine.

    Args:
        timings: Of modules, as far as anybody wants them; emptied with each step.

    Attributes:
        has_backward: Whether a backward pass ran in the step at hand.
    """

    def __init__(
        self,
        clock: StepClock,
        timeline: Timeline,
        phases: StepPhases,
        timings: list[Timing] | None,
        told: Told,
        sink: Sink,
        cost: Cost,
        failures: Failures,
    ) -> None:
        self._clock = clock
        self._timeline = timeline
        self._phases = phases
        self._timings = timings
        self._told = told
        self._sink = sink
        self._cost = cost
        self._failures = failures
        self._start = Mark(0, 0.0, 0)
        self._end: Mark | None = None
        self._spent_before_s = 0.0
        self._has_trained = self._is_open = False
        self.has_backward = False

    def ends(self, at_ns: int, spent_s: float) -> Mark:
        """Something has ended by which the step may end."""
        self._end = mark = Mark(at_ns, spent_s, self._timeline.clock.tick())
        return mark

    def begin(self) -> None:
        """The step at hand is handed on, and the next one begins where that has ended."""
        timeline = self._timeline
        began = perf_counter()
        start = self._end if self._is_open else None
        if start is None:
            start = Mark(timeline.last_fetch_ns(perf_counter_ns()), timeline.hook_s, timeline.first_lamport())
        self._hand_on(is_last=False)
        self._is_open = True
        self._clock.begin()
        self._start, self._end = start, None
        timeline.begin_step(self._clock.step, start.at_ns, start.spent_s, start.lamport)
        now = perf_counter()
        timeline.hook_s += now - began  # it delays this step
        self._spent_before_s = timeline.hook_s  # but is no hook's
        try:
            self._failures.guarded(self._sink.entered, self._clock.step)
            self._told.tell(self._told.step_began, self._clock.step)
        finally:
            timeline.hook_s += perf_counter() - now

    def finish(self) -> None:
        """No step comes after the one at hand."""
        self._hand_on(is_last=True)
        self._is_open = False

    def _hand_on(self, *, is_last: bool) -> None:
        cost, now, counts = self._cost, perf_counter(), True
        cost.hook_s = self._timeline.hook_s - self._spent_before_s
        if self._is_open:
            apart_s = 0.0
            try:
                trace = self._trace(is_last)
                self._told.tell(self._told.step_ended, trace)
                counts, apart_s = not trace.is_counted, trace.apart_ns * 1e-9
                self._timeline.trace_steps.add(trace.spans, is_counted=trace.is_counted)
                self._failures.guarded(self._sink.stepped, trace)
            except Exception as error:
                self._failures.add(error)
            if counts:
                cost.drained(perf_counter() - now - apart_s)
        if is_last:
            cost.finish(now, counts=counts)
        else:
            cost.end_step(now, counts=counts)

    def _trace(self, is_last: bool) -> StepTrace:
        timeline = self._timeline
        start, end = self._start, self._end or Mark(perf_counter_ns(), timeline.hook_s, 0)
        spans, sources = timeline.end_step(end.at_ns, end.spent_s)
        if is_last:
            spans += timeline.finish(end.at_ns)
        kind = "inference"
        if self.has_backward:
            kind, self._has_trained = "training", True
        elif self._clock.evaluates and self._has_trained:
            kind = "evaluation"
        self.has_backward = False
        timings = list(self._timings or ())
        if self._timings is not None:
            del self._timings[: len(timings)]  # not more: a thread may add one meanwhile
        return StepTrace(
            self._clock.step,
            kind,
            start.at_ns,
            end.at_ns,
            spans,
            timings,
            overhead_ns=round((end.spent_s - start.spent_s) * 1e9),
            phases_ns=self._phases.take(sources),
            is_last=is_last,
        )
