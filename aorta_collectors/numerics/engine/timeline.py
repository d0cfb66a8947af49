"""The spans of one process: what is open on each thread, and what has ended."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any, NamedTuple

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.filter import StepsFilter
from aorta_collectors.numerics.engine.opened import Held, Opened, Stack
from aorta_collectors.numerics.engine.trace_steps import TraceSteps
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.numerics.spans.span import Span

__all__ = ["Opened", "Source", "Timeline"]

_MOST_PENDING = 100_000  # of a program that calls no model, so that no step ends
_MOST_SOURCES = 10_000  # likewise
_MOST_STEPS = 16  # in the last of which a span may have begun that is told late
_UNFINISHED = {"unfinished": True}
#: Spans by these names, whoever adds them, are phases of a step.
_SOURCES = {"DATA": "data", "H2D": "h2d", "GRAD_H2D": "grad_h2d"}


class Source(NamedTuple):
    """A phase of a step that is not the engine's.

    Attributes:
        own_ns: Without what observing took.
    """

    phase: str
    start_ns: int
    end_ns: int
    own_ns: int


class Timeline:
    """Collects spans from any thread. In a fork of the process nothing is recorded.

    Attributes:
        step: The step at hand, 0 before the first; the engine counts.
        hook_s: Seconds that observing has taken so far. Who observes adds to it; a span knows how much it grew.
        filter: Says what is kept.
        clock: The process's logical clock.
        dropped: Spans that there was no room for, since no step had ended for long.
    """

    def __init__(self, config: Config, clock: LamportClock) -> None:
        self.step = 0
        self.hook_s = 0.0
        self.clock = clock
        self.filter = StepsFilter(config.steps)
        self.dropped = 0
        self.trace_steps = TraceSteps()
        self._records = config.traces
        self._tick = clock.tick
        # The first step begins with what had been before anybody knew of it, and so before that on this clock.
        self._first_lamport: int | None = clock.tick()
        self._next_id = itertools.count(1).__next__
        self._threads = threading.local()
        self._stacks: weakref.WeakValueDictionary[int, Stack] = weakref.WeakValueDictionary()
        self._ended: list[Span] = []
        self._sources: list[Source] = []
        self._step: Opened | None = None  # that began last
        self._steps: deque[Opened] = deque(maxlen=_MOST_STEPS)  # with those before it
        self._over_ns: int | None = None  # when the last of all ended
        self._pid = os.getpid()

    @property
    def overhead_ns(self) -> int:
        """The same as hook_s in nanoseconds; may be added to."""
        return round(self.hook_s * 1e9)

    @overhead_ns.setter
    def overhead_ns(self, value: int) -> None:
        self.hook_s = value * 1e-9

    def stack(self) -> Stack:
        """What is open on this thread."""
        try:
            stack: Stack = self._threads.stack
        except AttributeError:
            stack = self._threads.stack = Stack()
            self._stacks[stack.thread] = stack
        return stack

    def keeps(self, name: str, kind: str, layer: str) -> bool:
        """Whether such a span is written, which runs now."""
        return self._records and self.filter.keeps(name, kind, layer)

    def hold(self, name: str, kind: str) -> Opened:
        """Something begins now that goes on until it is given to `end`, whatever else ends before."""
        opened = Held(name, kind, "", "", self.keeps(name, kind, ""))
        self.open(opened, perf_counter_ns(), self.hook_s)
        return opened

    def begin(self, name: str, kind: str, layer: str = "", direction: str = "", *, at_ns: int | None = None) -> Opened:
        """Something begins on this thread, now or at `at_ns`; give what is returned to `end`."""
        opened = Opened(name, kind, layer, direction, self.keeps(name, kind, layer))
        self.open(opened, perf_counter_ns() if at_ns is None else at_ns, self.hook_s)
        return opened

    def open(self, opened: Opened, at_ns: int, spent_s: float, around: Opened | None = None) -> None:
        """`opened` begins on this thread.

        Args:
            spent_s: What `hook_s` would be by then.
            around: What encloses it where nothing is open on this thread; else the step.
        """
        stack = self.stack()
        self._place(opened, at_ns, stack, stack[-1] if stack else around)
        opened.stack = stack
        opened.spent_s = spent_s
        stack.append(opened)

    def end(
        self, opened: Opened, *, at_ns: int | None = None, attributes: Mapping[str, Any] | None = None
    ) -> Span | None:
        """It ends, now or at `at_ns`, and with it what is still open inside it. Returns its span if that is kept."""
        end_ns = perf_counter_ns() if at_ns is None else at_ns
        return self.close(opened, end_ns, self.hook_s, attributes)

    def close(
        self, opened: Opened, end_ns: int, spent_s: float, attributes: Mapping[str, Any] | None = None
    ) -> Span | None:
        """The same where `hook_s` would be `spent_s` by then."""
        stack, opened.stack = opened.stack, None
        if stack is None:
            return None  # something that enclosed it has ended before
        if stack[-1] is opened:
            stack.pop()
        else:
            held = []
            while (inner := stack.pop()) is not opened:
                if type(inner) is Held:
                    # It goes on, beside this one.
                    if inner.parent_id == opened.shown_id:
                        inner.parent_id = opened.parent_id
                    held.append(inner)
                else:
                    # What an exception has ended without a word.
                    inner.stack = None
                    self._record(inner, end_ns, spent_s, None)
            stack += reversed(held)
        return self._record(opened, end_ns, spent_s, attributes)

    def remove(self, opened: Opened, now_ns: int) -> None:
        """It has ended before, by an exception that nobody told of; what was opened on its thread since goes on."""
        stack, opened.stack = opened.stack, None
        if stack is not None:
            stack.remove(opened)
            self._record(opened, now_ns, self.hook_s, None)

    def end_all(self) -> None:
        """What is open on any thread has come this far; how it ends is not told any more."""
        now = perf_counter_ns()
        for stack in list(self._stacks.values()):
            for opened in reversed(stack.copy()):
                if opened.stack is not None:
                    opened.stack = None
                    self._record(opened, now, self.hook_s, _UNFINISHED)
        self.stack().clear()

    def add(
        self,
        name: str,
        kind: str,
        start_ns: int,
        end_ns: int,
        layer: str = "",
        direction: str = "",
        attributes: Mapping[str, Any] | None = None,
        *,
        overhead_ns: int = 0,
    ) -> Span | None:
        """Something that has been. It is told of in the step at hand, and belongs to the one that it began in.

        Unless it is given, what observing took meanwhile is not known, and told as 0.
        """
        opened = Opened(name, kind, layer, direction, self.keeps(name, kind, layer))
        stack = self.stack()
        outer = next((outer for outer in reversed(stack) if outer.start_ns <= start_ns), None)
        self._place(opened, start_ns, stack, outer)
        opened.spent_s = self.hook_s - overhead_ns * 1e-9
        return self._record(opened, end_ns, self.hook_s, attributes)

    def _record(self, opened: Opened, end_ns: int, spent_s: float, attributes: Mapping[str, Any] | None) -> Span | None:
        source = _SOURCES.get(opened.name)
        if source is not None:
            if len(self._sources) >= _MOST_SOURCES:  # none of them will be asked for
                del self._sources[: _MOST_SOURCES // 2]
            self._sources.append(Source(source, opened.start_ns, end_ns, max(0, opened.own_ns(end_ns, spent_s))))
        if not opened.keep or os.getpid() != self._pid:
            return None
        span = opened.span(end_ns, spent_s, attributes)
        if len(self._ended) < _MOST_PENDING:
            self._ended.append(span)
        else:
            self.dropped += 1
        return span

    def _place(self, opened: Opened, at_ns: int, stack: Stack, outer: Opened | None) -> None:
        """Something begins, or began, at `at_ns`: inside of `outer`, or of the step that ran then."""
        step, opened.step = self._step, self.step
        if step is not None:
            if at_ns < step.start_ns:
                steps = self._steps.copy()  # another thread may begin one meanwhile
                step = next((step for step in reversed(steps) if step.start_ns <= at_ns), None)
                opened.step = steps[0].step - 1 if step is None else step.step
            elif self._over_ns is not None and at_ns >= self._over_ns:
                step = None
        outer = outer or step
        opened.parent_id = outer.shown_id if outer is not None else 0
        opened.span_id = self._next_id()
        opened.thread = stack.thread
        opened.lamport = self._tick()
        opened.start_ns = at_ns

    def take(self) -> list[Span]:
        """The spans that have ended since this was last asked, in the order of their ends."""
        number = len(self._ended)  # other threads may add meanwhile, at the end
        taken = self._ended[:number]
        del self._ended[:number]
        return taken

    # -- steps

    def begin_step(self, step: int, at_ns: int, spent_s: float, lamport: int) -> None:
        """Step `step` has begun at `at_ns`: what has begun since then is its own, whether it has ended or not."""
        outside = {0, *(before.shown_id for before in self._steps)}
        opened = Opened("STEP", "step", "", "", self._records)
        opened.parent_id = 0
        opened.span_id = self._next_id()
        opened.step = self.step = step
        opened.thread = self.stack().thread
        opened.lamport = lamport
        opened.spent_s = spent_s
        opened.start_ns = at_ns
        self._step = opened
        self._steps.append(opened)
        self._over_ns = None
        for index, span in enumerate(self._ended):
            if span.start_ns >= at_ns:
                parent = opened.shown_id if span.parent_id in outside else span.parent_id
                self._ended[index] = span._replace(step=step, parent_id=parent)
        for stack in list(self._stacks.values()):
            for inner in stack:
                if inner.start_ns >= at_ns:
                    inner.step = step
                    inner.parent_id = opened.shown_id if inner.parent_id in outside else inner.parent_id

    def end_step(self, at_ns: int, spent_s: float) -> tuple[list[Span], list[Source]]:
        """The step at hand has ended at `at_ns`; returns its spans, its own last, and phases that are not the engine's.

        What has begun since then is left for the next step.
        """
        step = self._step
        taken = self.take()
        own = [span for span in taken if span.start_ns < at_ns]
        self._ended[:0] = [span for span in taken if span.start_ns >= at_ns]
        sources = [source for source in self._sources if source.start_ns < at_ns]
        self._sources = [source for source in self._sources if source.start_ns >= at_ns]
        if step is not None and self._records:
            own.append(step.span(at_ns, spent_s, None))
        return own, sources

    def last_fetch_ns(self, default: int) -> int:
        """When the fetching of the last batch so far began: the first step begins by that."""
        return max((source.start_ns for source in self._sources if source.phase == "data"), default=default)

    def first_lamport(self) -> int:
        """The clock's time for a step that begins where none was before."""
        first, self._first_lamport = self._first_lamport, None
        return self._tick() if first is None else first

    def finish(self, at_ns: int) -> list[Span]:
        """No step is open since then. Returns what has ended since the last one did, which lies in no step."""
        self._over_ns = at_ns
        outside = self._step.shown_id if self._step is not None else 0
        return [span._replace(parent_id=0) if span.parent_id == outside else span for span in self.take()]
