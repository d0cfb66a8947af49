"""One armed stretch of one process: the observer, the recorder and the two files, from arm to close."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.console import attached_lines, shortened
from aorta_collectors.layer_numerics.diagnostics import AllocatorTrace, TensorDump
from aorta_collectors.layer_numerics.names import PROCESS
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.layer_numerics.request import request_of
from aorta_collectors.layer_numerics.summary import (
    configured_fields,
    followed_fields,
    observed_fields,
    origin_fields,
    recorded_fields,
)
from aorta_collectors.observe.compiling.hidden_calls import graph_breaks
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.glimpse import Glimpse
from aorta_collectors.observe.observation import RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.origin import OriginFinder
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.observe.step_trace import StepTrace

# A program that makes a model anew in each step must not fill the summary and its log with them.
_ROOTS = 100


class Session(ProcessSession):
    """Observes this process and leaves layers_rank<N>.jsonl and summary_rank<N>.json behind.

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
            "nanlog",
            directory,
            run_id,
            warnings=config.warnings,
            flush_s=config.flush_sec,
            to_the_end=to_the_end,
        )
        self._config = config
        self._records: RecordFile | None = None
        self._recorder: Recorder | None = None
        self._roots: dict[str, RootInfo] = {}
        self._roots_cut = 0
        self._origin: OriginFinder | Glimpse | None = None
        self._dump: TensorDump | None = None
        self._allocator = AllocatorTrace(self.log, self.warn)
        self.observer = Observer(request_of(config), self, self.warn)

    # -- what a session does

    @property
    def in_forked_child(self) -> bool:
        return self.observer.in_forked_child

    def start(self) -> None:
        self.observer.arm()

    def stop(self) -> None:
        self.observer.disarm()
        self._allocator.stop()

    def opened(self, place: Place) -> None:
        self._records = RecordFile(place.records)
        identity = {"rank": place.rank, "gpu": place.rank, "host": socket.gethostname(), "pid": os.getpid()}
        config = self._config
        self._recorder = Recorder(config, identity, self._records, self.log)
        if config.origin:
            self._origin = OriginFinder(place.rank, place.world_size)
        else:
            self._origin = Glimpse(place.rank)
        if "dump_tensor" in config.diagnostics:
            self._dump = TensorDump(place.records.parent, place.stem, self.log)

    @property
    def record_files(self) -> Sequence[RecordFile]:
        return [self._records] if self._records is not None else []

    def last_words(self) -> Iterator[str]:
        if self.observer.errors:
            errors, first = self.observer.errors, self.observer.first_error
            yield f"WARNING: {errors} tensor(s) could not be observed; the first: {first}"
        opaque = list(self.observer.roots.opaque)
        if opaque:
            breaks = sum(graph_breaks().values())
            yield (
                f"WARNING: torch.compile or TorchScript runs {len(opaque)} watched layer(s), whose calls leave no "
                f"records ({breaks} graph break(s)): {opaque[:10]}"
            )

    def result(self) -> str:
        first_bad = self._recorder.first_bad if self._recorder is not None else None
        return f"first_bad={shortened(first_bad)}"

    def fields(self) -> dict[str, Any]:
        assert self.place is not None
        assert self._recorder is not None
        return {
            "jsonl": str(self.place.records),
            **observed_fields(self.observer, list(self._roots.values()), self._roots_cut),
            **recorded_fields(self._recorder),
            **followed_fields(self._config, self.observer.following),
            **origin_fields(self._origin, self.observer.not_looked_at()),
            "dump_tensor_dumped": self._dump is not None and self._dump.dumped,
            "alloc_snapshot_dumped": self._allocator.dumped,
            **configured_fields(self._config),
        }

    # -- what the observer reports

    def attached(self, root: RootInfo) -> None:
        self.open()
        if len(self._roots) >= _ROOTS and root.label not in self._roots:
            if not self._roots_cut:
                self.log(f"WARNING: more than {_ROOTS} models; further ones are watched, but not listed")
            self._roots_cut += 1
            return
        self._roots[root.label] = root
        config = self._config
        if "alloc_snapshot" in config.diagnostics:
            self._allocator.start()
        for line in attached_lines(config, root):
            self.log(line)
        unmatched = self.observer.following.unmatched
        if unmatched:
            self.warn(f"the scope of follow{unmatched} matches no module of {root.label}")
        if config.follows:
            self.log(f"following {config.track_attr}; pipeline_installed={self.observer.following.pipeline_installed}")
        self.write_summary()

    def entered(self, step: int) -> None:
        self.beat(step)

    def ranges_wanted(self, step: int) -> bool:
        """Whether records of step `step` may tell the finite range of a clean tensor."""
        return self._recorder is None or self._recorder.wants_ranges(step)

    def observed(self, trace: StepTrace) -> None:
        if self._recorder is None or self._origin is None:
            return
        is_first_bad = self._recorder.step(trace)
        if self._dump is not None:
            for index, tensor in sorted(trace.tensors.items())[:1]:
                self._dump.save(trace.step, trace.observations[index], tensor)
        if is_first_bad and self.place is not None:
            self._allocator.dump(
                self.place.records.with_name(f"alloc_snapshot_step{trace.step}_{self.place.stem}.pickle")
            )
        found = self._origin.step(trace)
        if found and self._config.origin and self._origin.origin is not None:
            origin = self._origin.origin
            self.log(
                f"ORIGIN: step={origin['step']} stage={origin['stage']} module={origin['module']}: {origin['reason']}"
            )
        if is_first_bad or found:
            self.write_summary()
        else:
            self.write_if_due()
