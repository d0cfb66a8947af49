"""The processes of one trial that runs, as they are now: which count, how far they are, and what they write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import Source
from aorta_collectors.analysis.live_process import LiveProcess
from aorta_collectors.analysis.snapshot import Progress
from aorta_collectors.analysis.summaries import started_at
from aorta_collectors.artifacts.summaries import SUMMARY
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.order import Alignment, Line

# What is read of one kind of lines of all processes in one look, and of each process at least.
_LOOK_BYTES = 8 << 20
_LEAST_BYTES = 64 << 10

#: Told of the lines of one kind that a process has written since the last look, and where it stands among all.
Taking = Callable[[LiveProcess, Line, str, list[bytes]], None]


class LiveProcesses:
    """What the processes of one trial have written so far.

    Args:
        directory: Where they write.
        anchor: At or above it, the operator's own.
        source: The collector.
        take: Told of new lines.
        forget: Told that another launch writes there now, and that nothing of what was told before counts.

    Attributes:
        problems: What could not be read at the last look.
    """

    def __init__(self, directory: Path, anchor: Path, source: Source, take: Taking, forget: Callable[[], None]) -> None:
        self.directory = directory
        self.problems: list[str] = []
        self._anchor = Anchor(anchor)
        self._source = source
        self._take = take
        self._forget = forget
        self._processes: dict[str, LiveProcess] = {}

    def look(self) -> None:
        """Read what is new since the last look."""
        self.problems = []
        before = {stem: process.identity for stem, process in self._processes.items() if process.summary}
        try:
            with self._anchor.open(self.directory) as artifacts:
                for name in sorted(artifacts.sizes()):
                    if match := SUMMARY.match(name):
                        stem = match.group(1)
                        process = self._processes.setdefault(stem, LiveProcess(stem, self._source))
                        try:
                            process.look(artifacts)
                        except ArtifactError as error:
                            self.problems.append(str(error))
                if any(self._processes[stem].identity != identity for stem, identity in before.items()):
                    self._processes = {}
                    self._forget()
                    return self.look()
                current = self.current
                alignment = Alignment(process.summary for process in current)
                for process in current:
                    most_bytes = max(_LEAST_BYTES, _LOOK_BYTES // len(current))
                    for kind, tail in process.tails.items():
                        lines = tail.lines(artifacts, most_bytes)
                        self._take(process, alignment.line(process.summary), kind, lines)
        except ArtifactError as error:
            self.problems.append(str(error))

    @property
    def current(self) -> list[LiveProcess]:
        """Without those that an earlier launch left there, which were heard of last before the newest process began.

        Ranks that are started one by one have a launch of their own each, and so no run id in common.
        """
        known = [process for process in self._processes.values() if process.summary]
        newest = max(known, key=lambda process: started_at(process.summary), default=None)
        if newest is None:
            return []
        began, run_id = started_at(newest.summary), newest.summary.get("run_id")
        return [process for process in known if process.summary.get("run_id") == run_id or process.changed_at >= began]

    @property
    def passed_over_bytes(self) -> int:
        """Of all files of lines, what was not read."""
        tails = (tail for process in self._processes.values() for tail in process.tails.values())
        return sum(tail.passed_over_bytes for tail in tails)

    def progress(self) -> Progress | None:
        """What the summaries say; None while there are none."""
        known = self.current
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


def _earliest(processes: Sequence[LiveProcess], key: str) -> dict[str, Any] | None:
    """The earliest of all ranks' first_bad or first_nonfinite, with its rank."""
    alignment = Alignment(process.summary for process in processes)
    found = [
        (alignment.line(process.summary).position(process.summary[key]), process.rank, process.summary[key])
        for process in processes
        if process.summary.get(key) is not None
    ]
    _, rank, first = min(found, key=lambda entry: entry[:2], default=(None, None, None))
    return None if first is None else {"kind": _kind(first), **first, "rank": rank}


def _kind(found: Mapping[str, Any]) -> str:
    """Of a short form of a line of statistics, which has counts alone."""
    return "nan" if found.get("nan_count") else "inf"
