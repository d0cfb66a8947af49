"""Watching a run: what is known of it at this moment, again and again, at little cost."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aorta_collectors.analysis.captures import COLLECTOR, NONE, Captures, Trial
from aorta_collectors.analysis.live_trial import LiveTrial
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.analysis.snapshot import Cell, Snapshot
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.ledger import LEDGER, NOT_YET, Requested, read_ledger
from aorta_collectors.evidence.tree import Tree

# Looking through all folders of a sweep may take this share of the time.
_SHARE = 0.02
_FIRST_BAD = ("step", "direction", "layer", "kind")


class Watch:
    """What is watched: a run directory, a cell's, a trial's record or directory, or what NANLOG_DIR names.

    It need not be there yet.

    Raises:
        ArtifactError: The path names a file that is no trial's record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._captures = Captures(path, ())
        self._asked: Sequence[Requested] = ()
        self._search_at = 0.0
        self._trial: tuple[Trial, LiveTrial] | None = None  # that is shown
        if path.is_file():
            captures_below(path)

    def look(self) -> Snapshot:
        """What is known now. What cannot be read is told in it, and read again at the next look."""
        at = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        snapshot = Snapshot(at, str(self._path), "waiting")
        if not self._path.exists():
            return replace(snapshot, awaited=f"{self._path} does not exist yet")
        if self._trial is None or time.monotonic() >= self._search_at:
            failure = self._search()
            if failure is not None and not self._asked and self._trial is None:
                return replace(snapshot, awaited=failure)
        snapshot = replace(snapshot, cells=self._cells(), problems=self._captures.problems)
        has_ended = self._has_ended()
        if self._trial is None:
            return replace(
                snapshot, state="ended" if has_ended else "waiting", awaited="no trial has called a model yet"
            )
        shown, trial = self._trial
        trial.look()
        progress = trial.progress()
        if shown.record or (progress is not None and progress.has_ended):
            self._search_at = 0.0
        state, awaited = "running", None
        if has_ended or (shown.trial == NONE and progress is not None and progress.has_ended):
            state = "ended"
        elif progress is None:
            state, awaited = "waiting", "no process has written a summary yet"
        elif shown.record:
            state, awaited = "waiting", "this trial has ended; the next has called no model yet"
        return replace(
            snapshot,
            state=state,
            awaited=awaited,
            cell=shown.cell,
            trial=shown.index,
            progress=progress,
            magnitudes=trial.magnitudes(),
            problems=(*snapshot.problems, *trial.problems),
        )

    def _search(self) -> str | None:
        """Look for trials anew, and go over to the one that runs now; returns why that cannot be done."""
        began, failure = time.monotonic(), None
        try:
            self._asked = _asked(self._path)
            self._captures = captures_below(self._path)
        except ArtifactError as error:
            failure = str(error)
        self._search_at = time.monotonic() + (time.monotonic() - began) / _SHARE
        shown = self._shown()
        if shown is not None:
            trial = None if self._trial is None else self._trial[1]
            if trial is None or trial.directory != shown.artifacts:
                bare = shown.trial == NONE
                trial = LiveTrial(shown.artifacts, shown.artifacts if bare else shown.artifacts.parent.parent)
            self._trial = shown, trial
        return failure

    def _shown(self) -> Trial | None:
        """The trial that runs; where several do, the one that was heard of last; where none does, that which ended.

        Once the sweep has ended it is the first trial, in the recipe's order, in which something is bad.
        """
        trials = self._captures.captured
        bad = [trial for trial in trials if _first_bad(trial)]
        if self._has_ended() and bad:
            return bad[0]
        return max([trial for trial in trials if not trial.record] or trials, key=_heard_of, default=None)

    def _has_ended(self) -> bool:
        """Whether the sweep, or the one trial that is meant, has come to its end."""
        if self._asked:
            return all(entry.trial != NONE or entry.reason != NOT_YET for entry in self._asked)
        trials = self._captures.trials
        return len(trials) == 1 and trials[0].file == self._captures.path and bool(trials[0].record)

    def _cells(self) -> tuple[Cell, ...]:
        found = [_cell(trial) for trial in self._captures.trials if trial.trial != NONE]
        begun = {cell.cell for cell in found}
        asked = dict.fromkeys(entry.cell for entry in self._asked if entry.collector == COLLECTOR)
        order = {cell: index for index, cell in enumerate(asked)}
        to_come = [Cell(cell, None, "ended" if self._has_ended() else "to come") for cell in asked if cell not in begun]
        return tuple(sorted((*found, *to_come), key=lambda cell: order.get(cell.cell, len(order))))


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
    return Cell(
        trial.cell,
        trial.index,
        "ended",
        verdict,
        trial.passed,
        _first_bad(trial),
    )


def _first_bad(trial: Trial) -> dict[str, object] | None:
    """What its receipt says of the first bad value."""
    metrics = {} if trial.receipt is None else trial.receipt.metrics
    found = {key: metrics.get(f"{COLLECTOR}_first_bad_{key}") for key in _FIRST_BAD}
    return found if found["step"] is not None else None


def _heard_of(trial: Trial) -> float:
    """When one of its processes was heard of last, in seconds since the epoch."""
    with contextlib.suppress(OSError):
        names = [f"summary_{process.stem}.json" for process in trial.processes]
        return max(os.stat(trial.artifacts / name, follow_symlinks=False).st_mtime for name in names)
    return 0.0
