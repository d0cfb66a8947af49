"""One armed stretch of one process: the observer, the recorder and the two files, from arm to close."""

from __future__ import annotations

import datetime
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta_collectors import __version__
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.console import attached_lines, say, shortened
from aorta_collectors.layer_numerics.diagnostics import AllocatorTrace, TensorDump
from aorta_collectors.layer_numerics.place import Place, is_helper
from aorta_collectors.layer_numerics.pool import close_when_terminated
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.layer_numerics.request import request_of
from aorta_collectors.layer_numerics.signals import SignalNotes
from aorta_collectors.layer_numerics.standalone import StandaloneLaunch
from aorta_collectors.layer_numerics.summary import (
    configured_fields,
    followed_fields,
    observed_fields,
    origin_fields,
    recorded_fields,
)
from aorta_collectors.observe.compiling.hidden_calls import graph_breaks
from aorta_collectors.observe.files import RecordFile, SummaryFile
from aorta_collectors.observe.glimpse import Glimpse
from aorta_collectors.observe.observation import RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.origin import OriginFinder
from aorta_collectors.observe.step_trace import StepTrace

# A program that makes a model anew in each step must not fill the summary and its log with them.
_ROOTS = 100
_WARNINGS = 50
# What is brought up to date in the summary's place where it cannot be replaced, with the room for each.
_SHORT_VALUES = {"status": 10, "ended_by": 60, "write_error": 120}


class Session:
    """Observes this process and leaves layers_rank<N>.jsonl and summary_rank<N>.json behind.

    Files are opened when the first model is found, since only then are the rank and, in a sweep under torchrun, the
    directory known.

    Args:
        directory: Called once, when the files are opened.
        run_id: Likewise; gives the trial for which this is evidence, or None alone.
        to_the_end: Whether the process is watched until it ends, so that signals that end it are to be told of.
    """

    def __init__(
        self,
        config: Config,
        directory: Callable[[], Path],
        run_id: Callable[[], str | None] = lambda: None,
        *,
        to_the_end: bool = False,
    ) -> None:
        self._config = config
        self._to_the_end = to_the_end
        self._directory = directory
        self._find_run_id = run_id
        self._run_id: str | None = None
        self._started_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._place: Place | None = None
        self._records: RecordFile | None = None
        self._summary: SummaryFile | None = None
        self._signals: SignalNotes | None = None
        self._write_again_at = 0.0
        self._recorder: Recorder | None = None
        self._roots: dict[str, RootInfo] = {}
        self._roots_cut = 0
        self._closed = False
        self._status = "running"
        self._ended_by: str | None = None
        self._origin: OriginFinder | Glimpse | None = None
        self._dump: TensorDump | None = None
        self._warnings: list[str] = []
        self._write_errors: set[str] = set()
        self._allocator = AllocatorTrace(self.log, self._warn)
        self.observer = Observer(request_of(config), self, self._warn)

    def arm(self) -> None:
        self.observer.arm()

    def close(self, ended_by: str = "exit") -> None:
        """Drain, write the final summary and leave no hook behind. Safe to call again, and in a forked child."""
        if self._closed or self.observer.in_forked_child:
            return
        self._closed = True
        self.observer.disarm()
        self._allocator.stop()
        self._status, self._ended_by = "complete", ended_by[:500]
        try:
            if self._recorder is None:
                if self._is_helper():
                    return
                self._open()
                self.log("WARNING: no PyTorch model was called, so nothing was observed")
            if self.observer.errors:
                errors, first = self.observer.errors, self.observer.first_error
                self.log(f"WARNING: {errors} tensor(s) could not be observed; the first: {first}")
            opaque = list(self.observer.roots.opaque)
            if opaque:
                breaks = sum(graph_breaks().values())
                self.log(
                    f"WARNING: torch.compile or TorchScript runs {len(opaque)} watched layer(s), whose calls leave no "
                    f"records ({breaks} graph break(s)): {opaque[:10]}"
                )
            self._write_summary()
            if self._records is not None:
                self._records.close()
            if self._summary is not None:
                self._summary.close()
                self.log(f"summary -> {self._summary.path} (first_bad={shortened(self._first_bad)})")
            if self._signals is not None:
                self._signals.withdraw()
            left_over = self._place.left_over() if self._place is not None else []
            if left_over:
                self.log(f"WARNING: of an earlier launch, not of this one: {', '.join(left_over)}")
        except Exception as error:
            self.log(f"WARNING: could not write the summary: {type(error).__name__}: {error}")
        except BaseException:
            self._write_summary()  # somebody cannot wait and interrupts once more
            raise

    def leave(self, ended_by: str, is_main: bool) -> None:
        """The program is leaving without exit handlers, in its main thread or in another one, which must not wait."""
        if is_main:
            self.close(ended_by)
        elif not (self._closed or self.observer.in_forked_child):
            # The main thread may be stuck on a device, where results of the step at hand would have to come from.
            self._status, self._ended_by = "ended", ended_by
            self._write_summary()
            if self._signals is not None:
                self._signals.withdraw()

    def give_way(self, ended_by: str, is_main: bool) -> None:
        """Another program takes this one's place. It speaks for both, where this one has called no model."""
        if self._recorder is not None:
            self.leave(ended_by, is_main)

    def stay(self, failure: str) -> None:
        """It did not take its place after all."""
        was_closed = "ended", f"{failure}; what came then was not observed"[:500]
        self._status, self._ended_by = was_closed if self._closed else ("running", None)
        self._write_summary()

    def _is_helper(self) -> bool:
        """Whether this process, which called no model, stands beside one that did, as a launcher does."""
        return is_helper(self._directory(), self._find_run_id(), StandaloneLaunch.of(os.environ))

    # -- what the observer reports

    def attached(self, root: RootInfo) -> None:
        if self._recorder is None:
            self._open()
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
            self._warn(f"the scope of follow{unmatched} matches no module of {root.label}")
        if config.follows:
            self.log(f"following {config.track_attr}; pipeline_installed={self.observer.following.pipeline_installed}")
        self._write_summary()

    def entered(self, step: int) -> None:
        if self._summary is not None:
            self._summary.beat(step)
            self._write_if_due()

    def ranges_wanted(self, step: int) -> bool:
        """Whether records of step `step` may tell the finite range of a clean tensor."""
        return self._recorder is None or self._recorder.wants_ranges(step)

    def forked(self) -> None:
        """In a forked child: leave a note beside the evidence, which must not look complete without it."""
        note = {"run_id": self._run_id or self._find_run_id(), "pid": os.getpid(), "parent": os.getppid()}
        directory = self._directory()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"unobserved_p{os.getpid()}.json").write_text(json.dumps(note), encoding="utf-8")

    def observed(self, trace: StepTrace) -> None:
        if self._recorder is None or self._origin is None:
            return
        is_first_bad = self._recorder.step(trace)
        if self._dump is not None:
            for index, tensor in sorted(trace.tensors.items())[:1]:
                self._dump.save(trace.step, trace.observations[index], tensor)
        if is_first_bad and self._place is not None:
            self._allocator.dump(
                self._place.records.with_name(f"alloc_snapshot_step{trace.step}_{self._place.stem}.pickle")
            )
        found = self._origin.step(trace)
        if found and self._config.origin and self._origin.origin is not None:
            origin = self._origin.origin
            self.log(
                f"ORIGIN: step={origin['step']} stage={origin['stage']} module={origin['module']}: {origin['reason']}"
            )
        if is_first_bad or found:
            self._write_summary()
        else:
            self._write_if_due()

    # -- writing

    def _warn(self, message: str) -> None:
        """Say what is not as it was asked for; the summary keeps it."""
        if len(self._warnings) < _WARNINGS and message not in self._warnings:
            self._warnings.append(message)
        self.log(f"WARNING: {message}")

    def log(self, message: str) -> None:
        """One line on stderr, as the stock logger writes it."""
        rank = self._place.rank if self._place is not None else os.environ.get("RANK", "0")
        say(message, rank)

    @property
    def _first_bad(self) -> dict[str, Any] | None:
        return self._recorder.first_bad if self._recorder is not None else None

    def _open(self) -> None:
        place = Place.claim(self._directory(), self._find_run_id(), StandaloneLaunch.of(os.environ))
        self._place, self._run_id = place, place.run_id
        for warning in (*self._config.warnings, *filter(None, [place.warning])):
            self._warn(warning)
        self._records = RecordFile(place.records)
        self._summary = SummaryFile(place.summary, "steps_seen", widths=_SHORT_VALUES)
        identity = {"rank": place.rank, "gpu": place.rank, "host": socket.gethostname(), "pid": os.getpid()}
        config = self._config
        self._recorder = Recorder(config, identity, self._records, self.log)
        if config.origin:
            self._origin = OriginFinder(place.rank, place.world_size)
        else:
            self._origin = Glimpse(place.rank)
        if "dump_tensor" in config.diagnostics:
            self._dump = TensorDump(place.records.parent, place.stem, self.log)
        self._write_summary()
        if self._summary.error is None:
            place.settle()
        if self._to_the_end:
            close_when_terminated(self.close, Session.close.__code__, self.leave)
            self._signals = SignalNotes(place.records.parent, place.stem)

    def _write_if_due(self) -> None:
        if time.monotonic() >= self._write_again_at:
            self._write_summary()

    def _write_summary(self) -> None:
        if self._summary is None:
            return
        assert self._place is not None
        assert self._recorder is not None
        assert self._records is not None
        self._summary.write(
            {
                "schema_version": 1,
                "engine": f"aorta-collectors {__version__}",
                "run_id": self._run_id,
                "status": self._status,
                "ended_by": self._ended_by,
                "started_at": self._started_at,
                **self._place.fields(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "warnings": self._warnings,
                "write_error": self._records.error,
                "jsonl": str(self._place.records),
                **observed_fields(self.observer, list(self._roots.values()), self._roots_cut),
                **recorded_fields(self._recorder),
                **followed_fields(self._config, self.observer.following),
                **origin_fields(self._origin, self.observer.not_looked_at()),
                "dump_tensor_dumped": self._dump is not None and self._dump.dumped,
                "alloc_snapshot_dumped": self._allocator.dumped,
                **configured_fields(self._config),
            }
        )
        self._write_again_at = time.monotonic() + self._config.flush_sec
        for error in filter(None, (self._records.error, self._summary.error)):
            if error not in self._write_errors:
                self._write_errors.add(error)
                self.log(f"WARNING: could not write: {error}")
