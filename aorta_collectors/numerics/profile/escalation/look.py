"""A closer look at the bricks that one step has given a reason to look at, over the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from aorta_collectors.numerics.brick import Timing
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.profile.escalation import kernels
from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.profile.escalation.profiled import Operation, ProfiledStep
from aorta_collectors.numerics.profile.escalation.programs_profiler import ProgramsProfiler
from aorta_collectors.numerics.profile.escalation.sources import Unavailable
from aorta_collectors.numerics.profile.escalation.triggers import Trigger

_Line = dict[str, Any]
# Steps that may come from other threads until the one on which the profiler can be stopped runs one again.
_PATIENCE = 8


class Look:
    """Runs torch's profiler and the helper over one step, and over as many more as it takes the helper to see enough.

    Args:
        triggers: Why, and at what.
        programs: Tells whether the program runs a profiler of its own.
        without_kernels: Why kernels are not to be told; empty where they are.

    Attributes:
        step: The first, whose operations are told; 0 until it is over.
        span_id: Of its span; 0 where it has none.
        operations: What ran in it, by brick, once the look is over.
        unavailable: What could not be told so far, one sentence each.
    """

    def __init__(
        self, triggers: Sequence[Trigger], helper: Helper, programs: ProgramsProfiler, without_kernels: str = ""
    ) -> None:
        self.step = self.span_id = 0
        self.operations: dict[kernels.Key, list[Operation]] = {}
        self.unavailable: list[str] = []
        self._triggers = triggers
        self._helper = helper
        self._programs = programs
        self._without_kernels = without_kernels
        self._profiled = ProfiledStep()
        self._is_profiled = self._is_helped = False
        self._num_steps = 0
        self._timings: dict[kernels.Key, list[Timing]] = {(each.layer, each.direction): [] for each in triggers}

    def begin(self) -> None:
        """The step that begins is looked at. Waits until all that can look does, for a time that is bounded."""
        if self._without_kernels:
            self.unavailable.append(self._without_kernels)
        elif self._programs.is_there:
            self.unavailable.append("The program runs a profiler of its own, so that kernels are not told.")
        else:
            self._try(lambda: self._programs.ours(self._profiled.begin))
            self._is_profiled = self._profiled.runs

        def help_begins() -> None:
            self.unavailable += self._helper.begin(threading.get_native_id())
            self._is_helped = True

        self._try(help_begins)

    def step_ended(self, trace: StepTrace) -> list[_Line] | None:
        """A step is over. Returns the lines of the escalations, or None while the look goes on."""
        self._num_steps += 1
        is_over = trace.is_last or (
            (not self._is_helped or self._helper.has_seen_enough())
            and (not self._profiled.runs or self._profiled.can_end or self._num_steps >= _PATIENCE)
        )
        # The helper first, so that it does not see the profiler end.
        breakdown = self._broken_down() if is_over else None
        if is_over:
            self._programs.ours(self._profiled.end)
        if not self.step:
            self.step = trace.step
            self.span_id = next((span.span_id for span in reversed(trace.spans) if span.kind == "step"), 0)
            for timing in trace.timings:
                self._timings.get((timing.brick.layer, timing.direction), []).append(timing)
        if not is_over:
            return None
        if self._is_profiled:
            self._try(self._attribute)
            self.unavailable += self._profiled.remarks
        return [self._line(trigger, breakdown) for trigger in self._triggers]

    def yield_profiler(self) -> None:
        """The program is about to run one of its own."""
        if self._profiled.runs:
            self._profiled.end()
            self.unavailable.append("The program began to run a profiler of its own, so that not all kernels are told.")

    def profiler_is_over(self) -> bool:
        """Whether its profiler has stopped. Only the thread that started it can do that, and this tries to."""
        if self._profiled.runs:
            self._programs.ours(self._profiled.end)
        return not self._profiled.runs

    def drop(self) -> None:
        """Look no longer, and tell nothing."""
        self._programs.ours(self._profiled.end)
        self._helper.close()

    def _try(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Unavailable as reason:
            self.unavailable.append(str(reason))

    def _broken_down(self) -> _Line | None:
        if not self._is_helped:
            return None
        self._is_helped = False
        try:
            found, remarks = self._helper.end(self._num_steps)
        except Unavailable as reason:
            self.unavailable.append(str(reason))
            return None
        self.unavailable += remarks
        return found

    def _attribute(self) -> None:
        operations = self._profiled.operations()
        self.operations = {key: kernels.inside(operations, timings) for key, timings in self._timings.items()}

    def _line(self, trigger: Trigger, breakdown: _Line | None) -> _Line:
        """Of escalations_<stem>.jsonl, without what tells the process."""
        key = (trigger.layer, trigger.direction)
        unavailable = list(dict.fromkeys(self.unavailable))
        if not self._timings[key]:
            unavailable.append("The brick did not run in this step.")
        return {
            "step": self.step,
            "layer": trigger.layer,
            "direction": trigger.direction,
            "reason": trigger.reason,
            "value": round(trigger.value, 6),
            "threshold": trigger.threshold,
            "brick_us": round(sum(max(0, timing.own_ns) for timing in self._timings[key]) / 1e3, 3),
            "efficiency": None if trigger.efficiency is None else round(trigger.efficiency, 6),
            "over_budget": trigger.is_over_budget,
            "kernels": kernels.rows(self.operations.get(key, [])),
            "breakdown": breakdown,
            "unavailable": unavailable,
            "span_id": self.span_id or None,
        }
