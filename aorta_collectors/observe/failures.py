"""Errors of ours, which are never the program's."""

from __future__ import annotations

import os
import traceback
from typing import Any

from aorta_collectors.observe.modes import out_of_modes


class Failures:
    """Counts errors; the program goes on as if nothing had been there.

    Attributes:
        first: Of the first one: type, message, file and line. None as long as there is none.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: str | None = None

    def add(self, error: Exception) -> None:
        self.count += 1
        if self.first is None:
            place = traceback.extract_tb(error.__traceback__)[-1:]
            where = "".join(f" ({os.path.basename(frame.filename)}:{frame.lineno})" for frame in place)
            self.first = f"{type(error).__name__}: {error}{where}"

    def guarded(self, function: Any, *args: Any) -> None:
        """Call `function`, whose errors are added here."""
        try:
            out_of_modes(function, *args)
        except Exception as error:
            self.add(error)
