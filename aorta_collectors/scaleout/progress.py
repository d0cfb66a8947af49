"""Progress of a submission: a bar on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from aorta_collectors.printable import printable


class Display:
    """Shows cells done, running and failed."""

    def __init__(self, out: TextIO, total: int) -> None:
        """Args: total: How many cells there are."""
        # Lines stay whole: a path that is wrapped can be neither copied nor grepped.
        self._console = Console(file=out, highlight=False, soft_wrap=True)
        self._progress: Progress | None = None
        if self._console.is_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console)
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

    def say(self, cell: str, what: str) -> None:
        """One line about a cell. On a terminal it stays above the bar."""
        self._console.print(Text(printable(f"{cell}: {what}")))

    def count(self, done: int, running: int, failed: int) -> None:
        if self._progress is not None:
            description = f"cells: {done} done, {running} running, {failed} failed"
            self._progress.update(self._task, completed=done + failed, description=description)
