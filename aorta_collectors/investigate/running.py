"""`investigate run`: the runs of the schedule in their order, each once; a later call goes on where this one ended."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from aorta_collectors.errors import CollectorsError
from aorta_collectors.investigate.advice import Advice
from aorta_collectors.investigate.execution import close_lost, execute
from aorta_collectors.investigate.files import STDERR, SWEEP_LOG, Investigation, Run, open_investigation
from aorta_collectors.investigate.logs import last_lines
from aorta_collectors.investigate.progress import Display
from aorta_collectors.investigate.starting import started

_LOCK = ".lock"
_TAIL_LINES = 15


@dataclass(frozen=True)
class Standing:
    """Where an investigation stands.

    Attributes:
        runs: The last attempt at each run that was begun, in the schedule's order.
        left: Runs that are still to be made.
    """

    runs: tuple[Run, ...]
    left: int

    def count(self, state: str) -> int:
        return sum(run.state == state for run in self.runs)


def run_investigation(root: Path, stream: TextIO, *, only: int | None, allow_changes: bool) -> Standing:
    """Run what has not been run.

    A run that failed is kept as it is. One that was interrupted is kept too, and run again.

    Args:
        stream: Where progress is told.
        only: Number of the only run to be made, which has to be the next one.
        allow_changes: Whether machine, software or code may have changed since the first run.

    Raises:
        KeyboardInterrupt: As it came; what has been done is kept.
        CollectorsError: There is nothing that could be run here, another call runs it, or something has changed.
    """
    investigation = open_investigation(root)
    if investigation.metadata["mode"] != "fresh":
        raise CollectorsError(f"{root} is about artifacts that were there before; there is nothing to run")
    with _alone_in(investigation.root):
        waiting = _waiting(investigation, only)
        if waiting:
            next_run = waiting[0][0]["number"]
            investigation = started(investigation, next_run, allow_changes=allow_changes)
            advice = Advice(investigation)
            with Display(stream, len(investigation.metadata["schedule"])) as display:
                for index, (entry, attempt) in enumerate(waiting):
                    display.begins(entry, len(waiting) - index - 1)
                    run = execute(investigation, entry, attempt)
                    display.ended(run, _tail(run))
                    for line in advice.after(run):
                        display.say(line)
                    if run.state == "interrupted":
                        break
        runs = tuple(investigation.latest())
        over = sum(run.state in ("completed", "failed") for run in runs)
        return Standing(runs, len(investigation.metadata["schedule"]) - over)


def _waiting(investigation: Investigation, only: int | None) -> list[tuple[Mapping[str, Any], int]]:
    """The entries of the schedule that are to be run, each with the number of the attempt."""
    for run in investigation.runs():
        if run.state == "running":
            close_lost(investigation, run)
    latest = {run.number: run for run in investigation.latest()}
    found = []
    for entry in investigation.metadata["schedule"]:
        last = latest.get(entry["number"])
        if last is None or last.state == "interrupted":
            found.append((entry, 1 if last is None else last.attempt + 1))
    if only is None:
        return found
    numbers = [entry["number"] for entry in investigation.metadata["schedule"]]
    if only not in numbers:
        raise CollectorsError(f"--only {only}: the schedule has runs 1 to {len(numbers)}")
    if only in latest and latest[only].state != "interrupted":
        raise CollectorsError(f"--only {only}: it has been run, and no run is repeated")
    if found[0][0]["number"] != only:
        raise CollectorsError(f"--only {only}: run {found[0][0]['number']} comes before it in the declared order")
    return found[:1]


def _tail(run: Run) -> list[str]:
    if run.state == "completed":
        return []
    return last_lines(run.directory / STDERR, _TAIL_LINES) or last_lines(run.directory / SWEEP_LOG, _TAIL_LINES)


@contextlib.contextmanager
def _alone_in(root: Path) -> Iterator[None]:
    try:
        lock = (root / _LOCK).open("w")
    except OSError as error:
        raise CollectorsError(f"{root} cannot be written to: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CollectorsError(f"another call runs {root}; wait for it, or end it") from None
        yield
