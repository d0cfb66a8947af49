"""One armed stretch of one process: its points, what is written of them, and its summary, from arm to close."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from aorta_collectors.memory.allocator import Allocator, TorchAllocator
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.marker import Points
from aorta_collectors.memory.names import PROCESS
from aorta_collectors.memory.output import Output
from aorta_collectors.memory.watch import Watch
from aorta_collectors.observe.environment import environment, generator_states
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.torch_collector.told import never_came

_FLUSH_S = 30.0
_MOST_NAMES = 100
# Names of points that are none, and told: the program may come by in each step.
_MOST_REFUSED = 10


class Session(ProcessSession):
    """Looks at this process's memory and leaves memory_rank<N>.jsonl, growth_rank<N>.jsonl and a summary behind.

    Args:
        directory, run_id, to_the_end: As of any session.
        allocator: Of the devices; torch's own where it is not given.
    """

    def __init__(
        self,
        config: Config,
        directory: Callable[[], Path],
        run_id: Callable[[], str | None] = lambda: None,
        *,
        to_the_end: bool = False,
        allocator: Allocator | None = None,
    ) -> None:
        super().__init__(
            PROCESS,
            "memory",
            directory,
            run_id,
            warnings=config.warnings,
            flush_s=_FLUSH_S,
            to_the_end=to_the_end,
        )
        self._config = config
        self._watch = Watch(config, self._attached, self.beat, self.warn, allocator or TorchAllocator())
        self._lifecycle = Lifecycle(
            self._watch,
            self._watch.wants,
            gradients=False,
            log=self.log,
            forked=self.forked,
            wants_parameters=lambda path, module: False,
        )
        self._failures = Failures()
        self._points = Points(self._user, self._refuse)
        self._refused: set[str] = set()
        self._around: Mapping[str, Any] = {}

    # -- what a session does

    @property
    def in_forked_child(self) -> bool:
        return self._lifecycle.in_forked_child

    def start(self) -> None:
        self._watch.open()
        self._lifecycle.arm()
        self._points.light()

    def stop(self) -> None:
        self._points.put_out()
        self._lifecycle.disarm()
        if self.place is None and self._watch.has_points:
            # No model was called, but the program had something to say.
            self.open()
        self._failures.guarded(self._watch.close)
        if self.place is not None and self._lifecycle.roots:
            for told in never_came(self._watch.unmatched, self._config.steps, self._lifecycle.step):
                self.warn(told)

    def opened(self, place: Place) -> None:
        # Once, before the first point: it takes a while, and memory.
        self._around = {"environment": environment(), "seeds": generator_states()}
        self._watch.output = Output(place, self.warn, grows=bool(self._config.stacks))
        self._watch.flush(is_end=False)

    @property
    def record_files(self) -> Sequence[RecordFile]:
        return self._watch.output.files if self._watch.output is not None else []

    def last_words(self) -> Iterator[str]:
        if self._errors:
            yield f"WARNING: {self._errors} exception(s) in hooks; the first: {self._first_error}"

    def result(self) -> str:
        assert self._watch.output is not None
        return f"{self._lifecycle.step} step(s), {self._watch.output.points.written} point(s)"

    def fields(self) -> Mapping[str, Any]:
        watch, told = self._watch, self._lifecycle.fields()
        assert watch.output is not None
        return {
            "torch": torch.__version__,
            "config": self._config.describe(),
            **self._around,
            **watch.output.fields(watch.dropped),
            **told,
            "hook_errors": self._errors,
            "first_hook_error": self._first_error,
            "overhead": {**told["overhead"], **watch.cost_fields()},
            "unseen_names": self._lifecycle.unseen[:_MOST_NAMES],
            "unmatched_scope": list(watch.unmatched),
            "steps_left_out": watch.steps.left_out,
            "history": watch.history,
            **watch.course.fields(),
        }

    @property
    def _errors(self) -> int:
        return self._lifecycle.errors + self._failures.count

    @property
    def _first_error(self) -> str | None:
        return self._lifecycle.first_error or self._failures.first

    # -- what is reported

    def _user(self, name: str) -> None:
        self._lifecycle.cost.timed(self._failures.guarded, self._watch.user, name)

    def _refuse(self, why: str) -> None:
        if why not in self._refused and len(self._refused) < _MOST_REFUSED:
            self._refused.add(why)
            self.warn(why)

    def _attached(self, label: str) -> None:
        self.open()
        scope = f", scope={','.join(self._config.scope)}" if self._config.scope else ""
        self.log(f"attached to {label}: points={','.join(self._config.points)}{scope}, detail={self._config.detail}")
        self.write_summary()
