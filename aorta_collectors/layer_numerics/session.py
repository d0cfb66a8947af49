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
from aorta_collectors.layer_numerics.place import Place
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.layer_numerics.summary import configured_fields, observed_fields, recorded_fields
from aorta_collectors.observe.files import RecordFile, SummaryFile
from aorta_collectors.observe.observation import Observation, RootInfo
from aorta_collectors.observe.observer import Observer

# A program that makes a model anew in each step must not fill the summary and its log with them.
_ROOTS = 100


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
        self.observer = Observer(
            config.groups, self, threshold=config.huge_threshold, max_param_numel=config.max_param_numel
        )

    def arm(self) -> None:
        for warning in self._config.warnings:
            self.log(f"WARNING: {warning}")
        self.observer.arm()

    def close(self, ended_by: str = "exit") -> None:
        """Drain, write the final summary and leave no hook behind. Safe to call again, and in a forked child."""
        if self._closed or self.observer.in_forked_child:
            return
        self._closed = True
        self.observer.disarm()
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
                self.log(f"summary -> {self._summary.path} (first_bad={self._first_bad})")
        except Exception as error:
            self.log(f"WARNING: could not write the summary: {type(error).__name__}: {error}")

    def _is_helper(self) -> bool:
        """Whether this process, which called no model, stands beside one of its trial that did: a launcher, say."""
        return self._find_run_id() is not None and any(self._directory().glob("summary_rank*.json"))

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
        if not root.watched_names:
            self.log(
                f"WARNING: 0 modules matched (types={config.types}, names={config.names}) in {root.label}. Names are "
                "substrings of module paths, types are class names"
            )
        self.log(
            f"attached layer hooks to {len(root.watched_names)} module(s) (types={config.types}, "
            f"names={config.names}); channels={config.channels}; params_scanned={root.params_scanned}; "
            f"params_skipped={len(root.skipped_params)}; root={root.label}"
        )
        if 0 < len(root.watched_names) <= 10:
            self.log(f"watched modules: {list(root.watched_names)}")
        self._write_summary()

    def entered(self, step: int) -> None:
        if self._summary is not None:
            self._summary.beat(step)

    def forked(self) -> None:
        """In a forked child: leave a note beside the evidence, which must not look complete without it."""
        note = {"run_id": self._find_run_id(), "pid": os.getpid(), "parent": os.getppid()}
        directory = self._directory()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"unobserved_p{os.getpid()}.json").write_text(json.dumps(note), encoding="utf-8")

    def observed(self, step: int, observations: list[Observation]) -> None:
        if self._recorder is not None and self._recorder.step(step, observations):
            self._write_summary()

    # -- writing

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
        self._run_id = self._find_run_id()
        place = Place.claim(self._directory(), self._run_id)
        self._place = place
        if place.warning:
            self.log(f"WARNING: {place.warning}")
        self._records = RecordFile(place.records)
        self._summary = SummaryFile(place.summary, "steps_seen")
        identity = {"rank": place.rank, "gpu": place.rank, "host": socket.gethostname(), "pid": os.getpid()}
        self._recorder = Recorder(self._config, identity, self._records, self.log)

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
                "write_error": self._records.error or self._summary.error,
                "jsonl": str(self._place.records),
                **observed_fields(self.observer, list(self._roots.values()), self._roots_cut),
                **recorded_fields(self._recorder),
                **configured_fields(self._config),
            }
        )
