"""Progress of a submission: a bar on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from aorta_collectors.display import Display as Lines


class Display(Lines):
    """Shows cells done, running and failed."""

    def say(self, cell: str, what: str) -> None:
        """One line about a cell. On a terminal it stays above the bar."""
        self._line(f"{cell}: {what}")

    def count(self, done: int, running: int, failed: int) -> None:
        self._at(done + failed, f"cells: {done} done, {running} running, {failed} failed")
