"""One armed stretch of one process, whatever is observed in it: its place, its summary, what it says, and its end."""

from __future__ import annotations

import datetime
import json
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors import __version__
from aorta_collectors.observe.files import RecordFile, SummaryFile
from aorta_collectors.observe.process.console import say
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.place import Place, is_helper
from aorta_collectors.observe.process.pool import close_when_terminated
from aorta_collectors.observe.process.signals import SignalNotes
from aorta_collectors.observe.process.standalone import StandaloneLaunch

_WARNINGS = 50
# What is brought up to date in the summary's place where it cannot be replaced, with the room for each.
_SHORT_VALUES = {"status": 10, "ended_by": 60, "write_error": 120}


class ProcessSession(ABC):
    """What the sessions of all collectors do alike. A collector says what it observes, writes and tells.

    Files are opened when the first model is found, since only then are the rank and, in a sweep under torchrun, the
    directory known.

    Args:
        names: Of its files and variables.
        speaker: Whose its lines on stderr are.
        directory: Called once, when the files are opened.
        run_id: Likewise; gives the trial for which this is evidence, or None alone.
        warnings: To be told once there is a place for them.
        flush_s: Seconds after which the summary is written anew.
        to_the_end: Whether the process is watched until it ends, so that signals that end it are to be told of.

    Attributes:
        place: The process's files; None before they are open.
    """

    def __init__(
        self,
        names: ProcessNames,
        speaker: str,
        directory: Callable[[], Path],
        run_id: Callable[[], str | None],
        *,
        warnings: Sequence[str],
        flush_s: float,
        to_the_end: bool,
    ) -> None:
        self.place: Place | None = None
        self._names = names
        self._speaker = speaker
        self._directory = directory
        self._find_run_id = run_id
        self._first_warnings = warnings
        self._flush_s = flush_s
        self._to_the_end = to_the_end
        self._started_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._summary: SummaryFile | None = None
        self._signals: SignalNotes | None = None
        self._write_again_at = 0.0
        self._is_armed = False
        self._closed = False
        self._opening = threading.RLock()
        self._status = "running"
        self._ended_by: str | None = None
        self._warnings: list[str] = []
        self._write_errors: set[str] = set()

    # -- what a collector adds

    @property
    @abstractmethod
    def in_forked_child(self) -> bool:
        """Whether this is a fork of the process that was armed."""

    @abstractmethod
    def start(self) -> None:
        """Begin to observe."""

    @abstractmethod
    def stop(self) -> None:
        """Hand over what was seen last, and leave no hook behind."""

    @abstractmethod
    def opened(self, place: Place) -> None:
        """Open what `record_files` lists."""

    @property
    @abstractmethod
    def record_files(self) -> Sequence[RecordFile]:
        """Files beside the summary that are open."""

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """Of the summary, beyond those that all collectors have."""

    @abstractmethod
    def last_words(self) -> Iterator[str]:
        """What is to be said before the last summary is written."""

    @abstractmethod
    def result(self) -> str:
        """What was found, in a few words."""

    def exit_status(self) -> int | None:
        """What the process has to end with, whatever the program says; None for what the program says."""
        return None

    def told_of_end(self, ended_by: str) -> str:
        """What the summary says of how the process ended. Asked when observation has stopped."""
        return ended_by

    # -- from arm to close

    def arm(self) -> None:
        self._is_armed = True
        self.start()

    def close(self, ended_by: str = "exit") -> None:
        """Drain, write the final summary and leave no hook behind. Safe to call again, and in a forked child."""
        if self._closed or not self._is_armed or self.in_forked_child:
            return
        self._closed = True
        self.stop()
        self._status, self._ended_by = "complete", self.told_of_end(ended_by)[:500]
        try:
            if self.place is None:
                if self._is_helper():
                    return
                self.open()
                self.log("WARNING: no PyTorch model was called, so nothing was observed")
            for line in self.last_words():
                self.log(line)
            self.write_summary()
            for file in self.record_files:
                file.close()
            if self._summary is not None:
                self._summary.close()
                self.log(f"summary -> {self._summary.path} ({self.result()})")
            if self._signals is not None:
                self._signals.withdraw()
            left_over = self.place.left_over() if self.place is not None else []
            if left_over:
                self.log(f"WARNING: of an earlier launch, not of this one: {', '.join(left_over)}")
        except Exception as error:
            self.log(f"WARNING: could not write the summary: {type(error).__name__}: {error}")
        except BaseException:
            self.write_summary()  # somebody cannot wait and interrupts once more
            raise

    def leave(self, ended_by: str, is_main: bool) -> None:
        """The program is leaving without exit handlers, in its main thread or in another one, which must not wait."""
        if is_main:
            self.close(ended_by)
        elif self._is_armed and not (self._closed or self.in_forked_child):
            # The main thread may be stuck on a device, where results of the step at hand would have to come from.
            self._status, self._ended_by = "ended", ended_by
            self.write_summary()
            if self._signals is not None:
                self._signals.withdraw()

    def give_way(self, ended_by: str, is_main: bool) -> None:
        """Another program takes this one's place. It speaks for both, where this one has called no model."""
        if self.place is not None:
            self.leave(ended_by, is_main)

    def stay(self, failure: str) -> None:
        """It did not take its place after all."""
        was_closed = "ended", f"{failure}; what came then was not observed"[:500]
        self._status, self._ended_by = was_closed if self._closed else ("running", None)
        self.write_summary()

    def forked(self) -> None:
        """In a forked child: leave a note beside the evidence, which must not look complete without it."""
        run_id = self.place.run_id if self.place is not None else None
        note = {"run_id": run_id or self._find_run_id(), "pid": os.getpid(), "parent": os.getppid()}
        directory = self._directory()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"unobserved_p{os.getpid()}.json").write_text(json.dumps(note), encoding="utf-8")

    # -- saying and writing

    def warn(self, message: str) -> None:
        """Say what is not as it was asked for; the summary keeps it."""
        if len(self._warnings) < _WARNINGS and message not in self._warnings:
            self._warnings.append(message)
        self.log(f"WARNING: {message}")

    def log(self, message: str) -> None:
        """One line on stderr."""
        say(self._speaker, message, self.place.rank if self.place is not None else os.environ.get("RANK", "0"))

    def open(self) -> None:
        """Have the process's files open. Models may be called for the first time in several threads at once."""
        with self._opening:
            if self.place is None:
                self._open()

    def _open(self) -> None:
        """Claim the process's place, and open its files there."""
        place = Place.claim(self._names, self._directory(), self._find_run_id(), self._launch())
        self.place = place
        for warning in (*self._first_warnings, *filter(None, [place.warning])):
            self.warn(warning)
        self._summary = SummaryFile(place.summary, "steps_seen", widths=_SHORT_VALUES)
        self.opened(place)
        self.write_summary()
        if self._summary.error is None:
            place.settle()
        if self._to_the_end:
            close_when_terminated(self.close, ProcessSession.close.__code__, self.leave)
            self._signals = SignalNotes(place.records.parent, place.stem)

    def beat(self, step: int) -> None:
        """Step `step` begins: the summary says so at once, and now and then everything else."""
        if self._summary is not None:
            self._summary.beat(step)
            self.write_if_due()

    def write_if_due(self) -> None:
        if time.monotonic() >= self._write_again_at:
            self.write_summary()

    def write_summary(self) -> None:
        if self._summary is None or self.place is None:
            return
        errors = [file.error for file in self.record_files if file.error is not None]
        self._summary.write(
            {
                "schema_version": 1,
                "engine": f"aorta-collectors {__version__}",
                "run_id": self.place.run_id,
                "status": self._status,
                "ended_by": self._ended_by,
                "started_at": self._started_at,
                **self.place.fields(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "warnings": self._warnings,
                "write_error": errors[0] if errors else None,
                **self.fields(),
            }
        )
        self._write_again_at = time.monotonic() + self._flush_s
        for error in filter(None, (*errors, self._summary.error)):
            if error not in self._write_errors:
                self._write_errors.add(error)
                self.log(f"WARNING: could not write: {error}")

    def _is_helper(self) -> bool:
        """Whether this process, which called no model, stands beside one that did, as a launcher does."""
        return is_helper(self._directory(), self._find_run_id(), self._launch())

    def _launch(self) -> StandaloneLaunch | None:
        return StandaloneLaunch.of(os.environ, self._names.run_id_variable)
