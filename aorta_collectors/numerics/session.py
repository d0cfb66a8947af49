"""One armed stretch of one process: the engine with its parts, and what they see as files, from arm to close."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from aorta_collectors.numerics.assembly import parts_of
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.names import EXIT_STOPPED, PROCESS
from aorta_collectors.numerics.output import Output
from aorta_collectors.numerics.part import LineStopped, StepTrace
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.numerics.spans.span import Span
from aorta_collectors.numerics.spans.trace_context import PARENT_VARIABLE, STATE_VARIABLE, TraceContext
from aorta_collectors.numerics.summary import configured_fields, observed_fields, told_by
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.process.session import ProcessSession

_FLUSH_S = 30.0


class Session(ProcessSession):
    """Observes this process and leaves spans_rank<N>.jsonl, summary_rank<N>.json and what else is asked for behind.

    Where the configuration asks for nothing, nothing is set, and nothing is left.

    Args:
        directory, run_id, to_the_end: As of any session.
    """

    def __init__(
        self,
        config: Config,
        directory: Callable[[], Path],
        run_id: Callable[[], str | None] = lambda: None,
        *,
        to_the_end: bool = False,
    ) -> None:
        super().__init__(
            PROCESS,
            "numerics",
            directory,
            run_id,
            warnings=config.warnings,
            flush_s=_FLUSH_S,
            to_the_end=to_the_end,
        )
        self._config = config
        # As the process was started; the program may put a trace of its own there.
        self._inherited = {name: os.environ.get(name, "") for name in (PARENT_VARIABLE, STATE_VARIABLE)}
        clock = LamportClock(TraceContext.of(self._inherited, None).lamport)
        self._began = perf_counter_ns(), clock.tick()
        self._thread = threading.get_native_id()
        timeline = Timeline(config, clock)
        self._parts = parts_of(config, timeline, self.warn, say=self._say, place=self._where)
        self.engine = Engine(config, self._parts, timeline, self, self.log)
        self._clock = clock
        self._timeline = timeline
        self._context: TraceContext | None = None
        self._before: Mapping[str, str | None] = {}
        self._output: Output | None = None

    def arm(self) -> None:
        if not self._config.asks_for_nothing:
            super().arm()

    @property
    def stopped(self) -> Mapping[str, Any] | None:
        """What `on_bad: stop` has ended the run with; None where it has not."""
        return told_by(self._parts, "stopped")

    def told_of_end(self, ended_by: str) -> str:
        # Neither of which knows of the other: a program may survive the exception.
        if self.stopped is not None and (ended_by == "exit" or ended_by.startswith(LineStopped.__name__)):
            return f"{LineStopped.__name__} (exit status {EXIT_STOPPED})"
        return ended_by

    def exit_status(self) -> int | None:
        return EXIT_STOPPED if self.stopped is not None else None

    # -- what a session does

    @property
    def in_forked_child(self) -> bool:
        return self.engine.in_forked_child

    def start(self) -> None:
        self.engine.arm()

    def stop(self) -> None:
        with contextlib.suppress(LineStopped):  # by what the last step left: `stopped` says so, and the status will
            self.engine.disarm()
        if self._context is not None:
            self._context.take_back(os.environ, self._before)
        if self._output is not None:
            self._finish(self._output)

    def _finish(self, output: Output) -> None:
        try:
            # What has ended in no step, or since the last one was handed on.
            output.finish(self._timeline.take(), self._of_process() if self._config.traces else None)
        except Exception as error:
            self.warn(f"the last spans were not sent on: {type(error).__name__}: {error}")

    def opened(self, place: Place) -> None:
        self._context = TraceContext.of(self._inherited, place.run_id)
        self._output = Output(self._config, place, self._context, self.warn)
        if self._closed:  # no model was called: this is for the summary's sake, and nothing else comes
            self._finish(self._output)
        elif self._config.traces:
            self._before = self._context.hand_down(os.environ, self._clock.tick())

    @property
    def record_files(self) -> Sequence[RecordFile]:
        return self._output.files if self._output is not None else []

    def last_words(self) -> Iterator[str]:
        engine = self.engine
        if engine.errors:
            yield f"WARNING: {engine.errors} exception(s) in hooks; the first: {engine.first_error}"
        if engine.opaque:
            yield (
                f"WARNING: torch.compile or TorchScript runs {len(engine.opaque)} layer(s), whose calls are not seen: "
                f"{list(engine.opaque)[:10]}"
            )

    def result(self) -> str:
        assert self._output is not None
        told = [f"{self.engine.step} step(s)", f"{self._output.fields()['files']['spans']['written']} span(s)"]
        if self._config.reads_layers:
            told.append(f"first_bad={_shortened(told_by(self._parts, 'first_bad'))}")
        return ", ".join(told)

    def fields(self) -> Mapping[str, Any]:
        assert self._output is not None
        assert self._context is not None
        return {
            "trace_id": self._context.trace_id,
            "parent_span_id": self._context.parent_id,
            **configured_fields(self._config),
            **self._output.fields(self._timeline.dropped),
            **observed_fields(self.engine, self._parts),
        }

    def _say(self, message: str) -> None:
        """What other ranks have to say of each step is much the same."""
        if self.place is not None and self.place.rank == 0:
            self.log(message)

    def _where(self) -> tuple[Path, str] | None:
        return None if self.place is None else (self.place.records.parent, self.place.stem)

    def _of_process(self) -> Span:
        """The span of the whole process, in which all others lie."""
        start_ns, lamport = self._began
        name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
        overhead_ns = self._timeline.overhead_ns
        return Span(name, "process", "", "", 0, start_ns, perf_counter_ns(), overhead_ns, 0, 0, self._thread, lamport)

    # -- what the engine reports

    def attached(self, label: str) -> None:
        self.open()
        self.log(f"attached to {label}: {self._asked()}; {self.engine.watched_count} module(s) watched so far")
        self.write_summary()

    def _asked(self) -> str:
        """What is observed, in a few words."""
        config = self._config
        told = [f"trace={config.trace}"]
        if config.steps:
            told.append(f"steps={','.join(config.steps)}")
        if config.reads_layers:
            told += [f"stats_every={config.stats_every}", f"on_bad={config.on_bad}"]
        if config.profiles:
            told.append(f"profile={config.profile}")
        return ", ".join([*told, f"step_metrics={config.step_metrics}"])

    def entered(self, step: int) -> None:
        self.beat(step)

    def stepped(self, trace: StepTrace) -> None:
        self.open()
        assert self._output is not None
        self._output.step(trace)
        for warning in trace.warnings:
            self.warn(warning)
        self.write_if_due()


def _shortened(first_bad: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if first_bad is None else {key: first_bad[key] for key in ("step", "layer", "direction")}
