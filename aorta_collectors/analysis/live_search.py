"""Which trial of a run is to be shown while it goes on, and how far its others are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from aorta_collectors.analysis.captures import NONE, Captures, Source, Trial
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.analysis.snapshot import Cell
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.ledger import LEDGER, NOT_YET, Requested, read_ledger
from aorta_collectors.evidence.tree import Tree

# Looking through all folders of a sweep may take this share of the time.
_SHARE = 0.02
_FIRST_BAD = ("step", "direction", "layer", "kind")


class LiveSearch:
    """A run directory, a cell's, a trial's record or directory, or what a variable names. It need not be there yet.

    Attributes:
        shown: The trial to be shown; None as long as none has called a model.

    Raises:
        ArtifactError: The path names a file that is no trial's record.
    """

    def __init__(self, path: Path, source: Source) -> None:
        self._path = path
        self._source = source
        self._captures = Captures(path, ())
        self._asked: Sequence[Requested] = ()
        self._search_at = 0.0
        self.shown: Trial | None = None
        if path.is_file():
            captures_below(path, source)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read."""
        return self._captures.problems

    def look(self) -> str | None:
        """Look for trials anew if it is time, and go over to the one that runs now.

        Returns:
            What is waited for, while there is nothing else to say.
        """
        if not self._path.exists():
            return f"{self._path} does not exist yet"
        if self.shown is None or time.monotonic() >= self._search_at:
            failure = self._search()
            if failure is not None and not self._asked and self.shown is None:
                return failure
        return None

    def soon(self) -> None:
        """The trial shown has ended: look for the next one at once."""
        self._search_at = 0.0

    def state(self, is_over: bool | None) -> tuple[str, str | None]:
        """waiting, running or ended, and what is waited for.

        Args:
            is_over: Whether the processes of the trial shown have ended; None while none has written a summary.
        """
        if self.shown is None:
            return "ended" if self.has_ended else "waiting", "no trial has called a model yet"
        if self.has_ended or (self.shown.trial == NONE and is_over):
            return "ended", None
        if is_over is None:
            return "waiting", "no process has written a summary yet"
        if self.shown.record:
            return "waiting", "this trial has ended; the next has called no model yet"
        return "running", None

    def _search(self) -> str | None:
        """Returns why that cannot be done."""
        began, failure = time.monotonic(), None
        try:
            self._asked = _asked(self._path)
            self._captures = captures_below(self._path, self._source)
        except ArtifactError as error:
            failure = str(error)
        self._search_at = time.monotonic() + (time.monotonic() - began) / _SHARE
        self.shown = self._choice() or self.shown
        return failure

    def _choice(self) -> Trial | None:
        """The trial that runs; where several do, the one that was heard of last; where none does, that which ended.

        Once the sweep has ended it is the first trial, in the recipe's order, in which something is bad.
        """
        trials = self._captures.captured
        bad = [trial for trial in trials if _first_bad(trial)]
        if self.has_ended and bad:
            return bad[0]
        return max([trial for trial in trials if not trial.record] or trials, key=_heard_of, default=None)

    @property
    def has_ended(self) -> bool:
        """Whether the sweep, or the one trial that is meant, has come to its end."""
        if self._asked:
            return all(entry.trial != NONE or entry.reason != NOT_YET for entry in self._asked)
        trials = self._captures.trials
        return len(trials) == 1 and trials[0].file == self._captures.path and bool(trials[0].record)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the sweep, in the recipe's order; empty without one."""
        found = [_cell(trial) for trial in self._captures.trials if trial.trial != NONE]
        begun = {cell.cell for cell in found}
        asked = dict.fromkeys(entry.cell for entry in self._asked if entry.collector == self._source.collector)
        order = {cell: index for index, cell in enumerate(asked)}
        to_come = [Cell(cell, None, "ended" if self.has_ended else "to come") for cell in asked if cell not in begun]
        return tuple(sorted((*found, *to_come), key=lambda cell: order.get(cell.cell, len(order))))


def anchor_of(trial: Trial) -> Path:
    """What is the operator's own, at or above where a trial's processes write."""
    return trial.artifacts if trial.trial == NONE else trial.artifacts.parent.parent


def _asked(path: Path) -> list[Requested]:
    """What the sweeps below a path were asked for; empty without any."""
    found: list[Requested] = []
    if path.is_dir():
        for folder in Tree(path).folders():
            if LEDGER in folder.kinds:
                with contextlib.suppress(ArtifactError):  # the captures tell of it
                    found += read_ledger(folder.directory)
    return found


def _cell(trial: Trial) -> Cell:
    if not trial.record:
        return Cell(trial.cell, trial.index, "running")
    verdict = None if trial.receipt is None else trial.receipt.verdict
    return Cell(trial.cell, trial.index, "ended", verdict, trial.passed, _first_bad(trial))


def _first_bad(trial: Trial) -> dict[str, object] | None:
    """What its receipt says of the first bad value."""
    metrics = {} if trial.receipt is None else trial.receipt.metrics
    found = {key: metrics.get(f"{trial.source.collector}_first_bad_{key}") for key in _FIRST_BAD}
    return found if found["step"] is not None else None


def _heard_of(trial: Trial) -> float:
    """When one of its processes was heard of last, in seconds since the epoch."""
    with contextlib.suppress(OSError):
        names = [f"summary_{process.stem}.json" for process in trial.processes]
        return max(os.stat(trial.artifacts / name, follow_symlinks=False).st_mtime for name in names)
    return 0.0
