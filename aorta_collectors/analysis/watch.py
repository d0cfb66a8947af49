"""Watching a run: what is known of it at this moment, again and again, at little cost."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from aorta_collectors.analysis.captures import LAYER_NUMERICS
from aorta_collectors.analysis.live_search import LiveSearch, anchor_of
from aorta_collectors.analysis.live_trial import LiveTrial
from aorta_collectors.analysis.snapshot import Snapshot


class Watch:
    """What is watched: a run directory, a cell's, a trial's record or directory, or what NANLOG_DIR names.

    It need not be there yet.

    Raises:
        ArtifactError: The path names a file that is no trial's record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._search = LiveSearch(path, LAYER_NUMERICS)
        self._trial: tuple[Path, LiveTrial] | None = None  # that is shown, and where it writes

    def look(self) -> Snapshot:
        """What is known now. What cannot be read is told in it, and read again at the next look."""
        search = self._search
        snapshot = Snapshot(now(), str(self._path), "waiting")
        awaited = search.look()
        if awaited is not None:
            return replace(snapshot, awaited=awaited)
        snapshot = replace(snapshot, cells=search.cells, problems=search.problems)
        shown = search.shown
        if shown is None:
            state, awaited = search.state(None)
            return replace(snapshot, state=state, awaited=awaited)
        if self._trial is None or self._trial[0] != shown.artifacts:
            self._trial = shown.artifacts, LiveTrial(shown.artifacts, anchor_of(shown))
        trial = self._trial[1]
        trial.look()
        progress = trial.progress()
        if shown.record or (progress is not None and progress.has_ended):
            search.soon()
        state, awaited = search.state(None if progress is None else progress.has_ended)
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


def now() -> str:
    """Local time, ISO 8601 with the offset."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
