"""One trial that runs, or what NANLOG_DIR names: its processes as they are now, and their records as they come in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.live_process import LiveProcess
from aorta_collectors.analysis.live_records import LiveRecords
from aorta_collectors.analysis.snapshot import Magnitudes, Progress
from aorta_collectors.analysis.summaries import started_at
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.order import Alignment
from aorta_collectors.layer_numerics.reading import SUMMARY

# What is read of all records' files together in one look, and of each at least.
_LOOK_BYTES = 8 << 20
_LEAST_BYTES = 64 << 10


class LiveTrial:
    """What the processes of one trial have written so far.

    Args:
        directory: Where they write.
        anchor: At or above it, the operator's own.

    Attributes:
        problems: What could not be read at the last look.
    """

    def __init__(self, directory: Path, anchor: Path) -> None:
        self.directory = directory
        self.problems: list[str] = []
        self._anchor = Anchor(anchor)
        self._processes: dict[str, LiveProcess] = {}
        self._records = LiveRecords()

    def look(self) -> None:
        """Read what is new since the last look."""
        self.problems = []
        before = {stem: process.identity for stem, process in self._processes.items() if process.summary}
        try:
            with self._anchor.open(self.directory) as artifacts:
                for name in sorted(artifacts.sizes()):
                    if match := SUMMARY.match(name):
                        process = self._processes.setdefault(match.group(1), LiveProcess(match.group(1)))
                        try:
                            process.look(artifacts)
                        except ArtifactError as error:
                            self.problems.append(str(error))
                if any(self._processes[stem].identity != identity for stem, identity in before.items()):
                    self._processes, self._records = {}, LiveRecords()  # another launch writes here now
                    return self.look()
                current = self._current()
                alignment = Alignment(process.summary for process in current)
                for process in current:
                    lines = process.tail.lines(artifacts, max(_LEAST_BYTES, _LOOK_BYTES // len(current)))
                    self._records.take(lines, alignment.line(process.summary).position)
        except ArtifactError as error:
            self.problems.append(str(error))

    def progress(self) -> Progress | None:
        """What the summaries say; None while there are none."""
        known = self._current()
        if not known:
            return None
        restart = max(process.restart for process in known)
        current = [process for process in known if process.restart == restart]
        foremost = max(current, key=lambda process: process.steps)
        world_size = max(int(process.summary.get("world_size", 1)) for process in current)
        sample_every = foremost.summary.get("config", {}).get("sample_every")
        return Progress(
            ranks=tuple(
                process.as_rank(foremost)
                for process in sorted(current, key=lambda process: (process.rank, process.stem))
            ),
            world_size=world_size,
            missing=max(0, world_size - len({process.rank for process in current})),
            restart=restart,
            steps=foremost.steps,
            steps_per_s=foremost.steps_per_s,
            since_step_s=min(process.silent_s for process in current),
            overhead=max(
                (share for process in current if (share := process.summary.get("overhead", {}).get("share_of_step"))),
                default=None,
            ),
            sample_every=sample_every if isinstance(sample_every, int) else None,
            first_bad=_earliest(known, "first_bad"),
            first_nonfinite=_earliest(known, "first_nonfinite"),
            origin=min(
                (origin for process in known if (origin := process.summary.get("origin")) is not None),
                key=lambda origin: (origin["step"], origin["rank"]),
                default=None,
            ),
        )

    def magnitudes(self) -> Magnitudes:
        return self._records.state(sum(process.tail.passed_over_bytes for process in self._processes.values()))

    def _current(self) -> list[LiveProcess]:
        """Without those that an earlier launch left there, which were heard of last before the newest process began.

        Ranks that are started one by one have a launch of their own each, and so no run id in common.
        """
        known = [process for process in self._processes.values() if process.summary]
        newest = max(known, key=lambda process: started_at(process.summary), default=None)
        if newest is None:
            return []
        began, run_id = started_at(newest.summary), newest.summary.get("run_id")
        return [process for process in known if process.summary.get("run_id") == run_id or process.changed_at >= began]


def _earliest(processes: Sequence[LiveProcess], key: str) -> dict[str, Any] | None:
    """The earliest of all ranks' first_bad or first_nonfinite, with its rank."""
    alignment = Alignment(process.summary for process in processes)
    found = [
        (alignment.line(process.summary).position(process.summary[key]), process.rank, process.summary[key])
        for process in processes
        if process.summary.get(key) is not None
    ]
    _, rank, first = min(found, key=lambda entry: entry[:2], default=(None, None, None))
    return None if first is None else {**first, "rank": rank}
