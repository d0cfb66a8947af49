"""How far an investigation is: a line for each run that has ended, and a bar below them on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

from aorta_collectors.investigate.described import run_text
from aorta_collectors.investigate.files import Run
from aorta_collectors.printable import printable


class Display:
    """Told what happens; a context manager.

    Args:
        stream: Where to; a bar is drawn only on a terminal.
        total: Runs in the schedule.
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._total = total
        self._took: list[float] = []
        self._began = 0.0
        self._progress: Any = None
        if stream.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Display:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begins(self, entry: Mapping[str, Any], left: int) -> None:
        """A run begins, after which `left` come."""
        self._began = time.monotonic()
        if self._progress is not None:
            estimate = ""
            if self._took:
                minutes = sum(self._took) / len(self._took) * (left + 1) / 60
                estimate = f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"
            text = f"run {entry['number']}: {run_text(entry)}{estimate}"
            self._progress.update(self._task, completed=self._total - left - 1, description=text)

    def ended(self, run: Run, tail: Sequence[str]) -> None:
        """A run has ended; `tail` are last lines of its output where it did not end well."""
        took = time.monotonic() - self._began
        self._took.append(took)
        reason = f": {run.record['reason']}" if run.record["reason"] else ""
        self.say(f"{run.directory.name}: {run.state} after {took:.1f} s{reason}")
        for line in tail:
            self.say(f"    | {line}")

    def say(self, line: str) -> None:
        """One line, above the bar."""
        from rich.text import Text

        self._console.print(Text(printable(line)))
