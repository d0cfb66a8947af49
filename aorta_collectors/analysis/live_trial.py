"""One trial that runs, or what NANLOG_DIR names: its processes as they are now, and their records as they come in."""

from __future__ import annotations

from pathlib import Path

from aorta_collectors.analysis.captures import LAYER_NUMERICS
from aorta_collectors.analysis.live_process import LiveProcess
from aorta_collectors.analysis.live_processes import LiveProcesses
from aorta_collectors.analysis.live_records import LiveRecords
from aorta_collectors.analysis.snapshot import Magnitudes, Progress
from aorta_collectors.layer_numerics.order import Line


class LiveTrial:
    """What the processes of one trial have written so far.

    Args:
        directory: Where they write.
        anchor: At or above it, the operator's own.
    """

    def __init__(self, directory: Path, anchor: Path) -> None:
        self._processes = LiveProcesses(directory, anchor, LAYER_NUMERICS, self._take, self._forget)
        self._records = LiveRecords()

    @property
    def problems(self) -> list[str]:
        """What could not be read at the last look."""
        return self._processes.problems

    def look(self) -> None:
        """Read what is new since the last look."""
        self._processes.look()

    def progress(self) -> Progress | None:
        """What the summaries say; None while there are none."""
        return self._processes.progress()

    def magnitudes(self) -> Magnitudes:
        return self._records.state(self._processes.passed_over_bytes)

    def _take(self, process: LiveProcess, line: Line, kind: str, lines: list[bytes]) -> None:
        self._records.take(lines, line.position)

    def _forget(self) -> None:
        self._records = LiveRecords()
