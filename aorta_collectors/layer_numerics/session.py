"""One armed stretch of one process: the observer, the recorder and the two files, from arm to close."""

from __future__ import annotations

import datetime
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta_collectors import __version__
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.diagnostics import AllocatorTrace, TensorDump
from aorta_collectors.layer_numerics.place import Place, is_helper
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.layer_numerics.standalone import StandaloneLaunch
from aorta_collectors.layer_numerics.summary import (
    configured_fields,
    followed_fields,
    observed_fields,
    origin_fields,
    recorded_fields,
)
from aorta_collectors.observe.files import RecordFile, SummaryFile
from aorta_collectors.observe.glimpse import Glimpse
from aorta_collectors.observe.observation import RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.origin import OriginFinder
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.trace import StepTrace

# A program that makes a model anew in each step must not fill the summary and its log with them.
_ROOTS = 100
_WARNINGS = 50


class Session:
    """Observes this process and leaves layers_rank<N>.jsonl and summary_rank<N>.json behind.

    Files are opened when the first model is found, since only then are the rank and, in a sweep under torchrun, the
    directory known.

    Args:
        directory: Called once, when the files are opened.
        run_id: Likewise; gives the trial for which this is evidence, or None alone.
    """

    def __init__(
        self, config: Config, directory: Callable[[], Path], run_id: Callable[[], str | None] = lambda: None
    ) -> None:
        self._config = config
        self._directory = directory
        self._find_run_id = run_id
        self._run_id: str | None = None
        self._started_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._place: Place | None = None
        self._records: RecordFile | None = None
        self._summary: SummaryFile | None = None
        self._recorder: Recorder | None = None
        self._roots: dict[str, RootInfo] = {}
        self._roots_cut = 0
        self._closed = False
        self._status = "running"
        self._ended_by: str | None = None
        self._origin: OriginFinder | Glimpse | None = None
        self._dump: TensorDump | None = None
        self._warnings: list[str] = []
        self._allocator = AllocatorTrace(self.log, self._warn)
        self.observer = Observer(_request(config), self, self._warn)

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
            self._write_summary()
            if self._records is not None:
                self._records.close()
            if self._summary is not None:
                self._summary.close()
                self.log(f"summary -> {self._summary.path} (first_bad={_short(self._first_bad)})")
            left_over = self._place.left_over() if self._place is not None else []
            if left_over:
                self.log(f"WARNING: of an earlier launch, not of this one: {', '.join(left_over)}")
        except Exception as error:
            self.log(f"WARNING: could not write the summary: {type(error).__name__}: {error}")

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
        if not root.watched_names and config.groups:
            self.log(
                f"WARNING: 0 modules matched (types={config.types}, names={config.names}) in {root.label}. Names are "
                "substrings of module paths, types are class names"
            )
        self.log(
            f"attached layer hooks to {len(root.watched_names)} module(s) (types={config.types}, "
            f"names={config.names}); channels={config.channels}; params_scanned={root.params_scanned}; "
            f"params_skipped={len(root.skipped_params)}; root={root.label}"
        )
        unmatched = self.observer.following.unmatched
        if unmatched:
            self._warn(f"the scope of follow{unmatched} matches no module of {root.label}")
        if config.follows:
            self.log(f"following {config.track_attr}; pipeline_installed={self.observer.following.pipeline_installed}")
        if 0 < len(root.watched_names) <= 10:
            self.log(f"watched modules: {list(root.watched_names)}")
        self._write_summary()

    def entered(self, step: int) -> None:
        if self._summary is not None:
            self._summary.beat(step)

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

    # -- writing

    def _warn(self, message: str) -> None:
        """Say what is not as it was asked for; the summary keeps it."""
        if len(self._warnings) < _WARNINGS and message not in self._warnings:
            self._warnings.append(message)
        self.log(f"WARNING: {message}")

    def log(self, message: str) -> None:
        """One line on stderr, as the stock logger writes it."""
        rank = self._place.rank if self._place is not None else os.environ.get("RANK", "0")
        try:
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} [PID={os.getpid()} rank={rank}] nanlog: {message}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # a closed or full stderr is the program's business

    @property
    def _first_bad(self) -> dict[str, Any] | None:
        return self._recorder.first_bad if self._recorder is not None else None

    def _open(self) -> None:
        place = Place.claim(self._directory(), self._find_run_id(), StandaloneLaunch.of(os.environ))
        self._place, self._run_id = place, place.run_id
        for warning in (*self._config.warnings, *filter(None, [place.warning])):
            self._warn(warning)
        self._records = RecordFile(place.records)
        self._summary = SummaryFile(place.summary, "steps_seen")
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
                "rank": self._place.rank,
                "world_size": self._place.world_size,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "warnings": self._warnings,
                "write_error": self._records.error or self._summary.error,
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


def _request(config: Config) -> Request:
    return Request(
        groups=config.groups,
        follows=config.follows,
        bounds=config.bounds,
        threshold=config.huge_threshold,
        headroom=config.huge_headroom,
        max_param_numel=config.max_param_numel,
        origin=config.origin,
        addresses="addr" in config.diagnostics,
        locate=not config.diagnostics.isdisjoint({"locate", "bad_values"}),
        keep_bad="dump_tensor" in config.diagnostics,
        follow_most=config.track_max,
        sparse=config.sparse,
        sparse_heavy=config.sparse_heavy,
    )


def _short(first_bad: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the stock logger has in its last line."""
    if first_bad is None:
        return None
    return {key: first_bad[key] for key in ("step", "layer", "direction", "kind", "matmul_calls_so_far")}
