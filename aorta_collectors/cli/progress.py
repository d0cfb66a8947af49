"""A progress bar on stderr, if that is a terminal and there is still something to do after a second."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

_QUICK_S = 1.0


class Bar(contextlib.ExitStack):
    """A context manager that is told how far the work is.

    Args:
        what: Is done, such as "verifying trials".
        counted: Whether `total` counts things, so that the bar tells their number; otherwise it tells the percentage.
    """

    def __init__(self, what: str, *, counted: bool = False) -> None:
        super().__init__()
        self._what = what
        self._counted = counted
        self._began = time.monotonic()
        self._update: Callable[[float], object] | None = None

    def __call__(self, done: float, total: float = 1.0) -> None:
        if self._update is None and sys.stderr.isatty() and done < total and time.monotonic() - self._began > _QUICK_S:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            state = MofNCompleteColumn() if self._counted else TaskProgressColumn()
            columns = (TextColumn(self._what), BarColumn(), state, TimeRemainingColumn())
            progress = self.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
            task = progress.add_task("", total=total, completed=done)  # type: ignore[arg-type]
            self._update = lambda done: progress.update(task, completed=done)
        if self._update is not None:
            self._update(done)
