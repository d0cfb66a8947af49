"""Escalation: bricks whose time varies or that are far under the roofline are looked at closer, one step later."""

from __future__ import annotations

import atexit
import os
import threading
from collections import Counter
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.profile.escalation import kernels
from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.profile.escalation.look import Look
from aorta_collectors.numerics.profile.escalation.programs_profiler import ProgramsProfiler
from aorta_collectors.numerics.profile.escalation.rate import TokenBucket
from aorta_collectors.numerics.profile.escalation.triggers import Table, Trigger, Triggers

_MOST_REASONS = 20
# Beginning and ending looks may take this long, and of a long run this part of its time. What waits is not forgotten.
_FREE_NS = 2_000_000_000
_SHARE = 0.1
_SEVERAL_THREADS = "Kernels are not told of a program whose steps come from several threads."


class Escalation(Part):
    """Has to come before the parts that count times: it says of the steps that it looks at that theirs do not count.

    Args:
        table: The bricks' times and efficiencies.
        helper: What looks at the process from outside.
    """

    def __init__(
        self,
        config: Config,
        table: Table,
        timeline: Timeline,
        helper: Helper | None = None,
    ) -> None:
        self._is_asked = config.escalates
        self._table = table
        self._timeline = timeline
        self._helper = helper or Helper()
        self._programs = ProgramsProfiler(self._yield)
        self._triggers = Triggers(config)
        self._bucket = TokenBucket(config.rate_limit)
        self._pending: dict[tuple[str, str, str], Trigger] = {}  # they may have to wait for long, and come again
        self._look: Look | None = None
        self._stuck: Look | None = None  # over, but for its profiler
        self._thread: int | None = None  # that runs the steps
        self._runs_on_several = False
        self._pid = 0
        self._began_ns = self._spent_ns = 0
        self._taken: Counter[kernels.Key] = Counter()
        self._suppressed = 0
        self._unavailable: dict[str, None] = {}

    def start(self) -> None:
        self._pid, self._began_ns = os.getpid(), perf_counter_ns()
        if self._is_asked:
            self._programs.start()

    def stop(self) -> None:
        self._programs.stop()
        look, self._look = self._look, None
        if look is not None:
            look.drop()
            self._stuck = look
        if self._stuck is not None and not self._stuck.profiler_is_over():
            atexit.register(self._stuck.profiler_is_over)  # which the main thread does
        self._helper.close()

    def wants(self, brick: Brick) -> bool:
        return False  # the engine's timings tell all

    def step_ended(self, trace: StepTrace) -> None:
        if not self._is_asked or os.getpid() != self._pid:
            return
        began_ns = perf_counter_ns()
        if not trace.is_last:  # whose end is seen from wherever observing ends
            self._note_thread(threading.get_ident())
        if self._stuck is not None and self._stuck.profiler_is_over():
            self._stuck = None
        if self._look is not None:
            trace.is_counted = True
            self._go_on(self._look, trace)
        elif not trace.is_counted:
            self._notice(trace, began_ns)
        if self._look is None and self._pending and not trace.is_last and self._may_look(began_ns):
            without_kernels = _SEVERAL_THREADS if self._runs_on_several else ""
            self._look = Look(list(self._pending.values()), self._helper, self._programs, without_kernels)
            self._pending = {}
            begins_ns = perf_counter_ns()
            self._look.begin()
            trace.apart_ns = perf_counter_ns() - begins_ns
        self._spent_ns += perf_counter_ns() - began_ns

    def taken_of(self, layer: str, direction: str) -> int:
        """Closer looks at one pass of a brick so far."""
        return self._taken[layer, direction]

    def fields(self) -> Mapping[str, Any]:
        if not self._is_asked:
            return {}
        return {
            "escalations": {
                "taken": sum(self._taken.values()),
                "suppressed": self._suppressed,
                "unavailable": list(self._unavailable),
            }
        }

    def _note_thread(self, thread: int) -> None:
        self._runs_on_several = self._runs_on_several or self._thread not in (None, thread)
        self._thread = thread

    def _notice(self, trace: StepTrace, now_ns: int) -> None:
        for trigger in self._triggers.found(self._table, trace.step, (trace.end_ns - trace.start_ns) / 1e3):
            if self._bucket.take(now_ns):
                self._pending[trigger.layer, trigger.direction, trigger.reason] = trigger
            else:
                self._suppressed += 1

    def _may_look(self, now_ns: int) -> bool:
        return self._stuck is None and self._spent_ns <= _FREE_NS + _SHARE * (now_ns - self._began_ns)

    def _go_on(self, look: Look, trace: StepTrace) -> None:
        lines = look.step_ended(trace)
        if lines is None:
            return
        self._look, self._stuck = None, look
        trace.escalations += lines
        for line in lines:
            self._taken[line["layer"], line["direction"]] += 1
        for reason in look.unavailable:
            if len(self._unavailable) < _MOST_REASONS:
                self._unavailable[reason] = None
        kernels.add_spans(self._timeline, look.operations)
        # The timeline may have forgotten a step that was many steps ago.
        trace.spans += (
            span._replace(step=look.step, parent_id=look.span_id) if span.kind == "kernel" else span
            for span in self._timeline.take()
        )
        if look.profiler_is_over():
            self._stuck = None

    def _yield(self) -> None:
        if self._look is not None:
            self._look.yield_profiler()
