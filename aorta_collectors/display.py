"""Progress of something long: lines, and on a terminal a bar below them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from aorta_collectors.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress
    from typing_extensions import Self


class Display:
    """A context manager, in which the bar stands.

    Args:
        stream: Where to.
        total: How much there is to do.
        bar: Whether one is drawn; None for where the stream counts as a terminal.
        transient: Whether the bar goes when all is done.
    """

    def __init__(self, stream: TextIO, total: int, *, bar: bool | None = None, transient: bool = False) -> None:
        from rich.console import Console

        # Lines stay whole: a path that is wrapped can be neither copied nor grepped.
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._progress: Progress | None = None
        if self._console.is_terminal if bar is None else bar:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=transient)
            self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _line(self, text: str) -> None:
        """One line, above the bar."""
        from rich.text import Text

        self._console.print(Text(printable(text)))

    def _at(self, completed: int, description: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=completed, description=description)
