"""How far an investigation is: a line for each run that has ended, and a bar below them on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from aorta_collectors.display import Display as Lines
from aorta_collectors.investigate.described import run_text
from aorta_collectors.investigate.files import Run


class Display(Lines):
    """Told what happens.

    Args:
        stream: Where to; a bar is drawn only on a terminal.
        total: Runs in the schedule.
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        super().__init__(stream, total, bar=stream.isatty(), transient=True)
        self._total = total
        self._took: list[float] = []
        self._began = 0.0

    def begins(self, entry: Mapping[str, Any], left: int) -> None:
        """A run begins, after which `left` come."""
        self._began = time.monotonic()
        estimate = ""
        if self._took:
            minutes = sum(self._took) / len(self._took) * (left + 1) / 60
            estimate = f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"
        self._at(self._total - left - 1, f"run {entry['number']}: {run_text(entry)}{estimate}")

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
        self._line(line)
