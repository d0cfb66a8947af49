"""Errors of ours, which are never the program's."""

from __future__ import annotations

import os
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
            self.first = _told(error)

    def guarded(self, function: Any, *args: Any) -> None:
        """Call `function`, whose errors are added here."""
        try:
            out_of_modes(function, *args)
        except Exception as error:
            self.add(error)


def _told(error: Exception) -> str:
    """Type, message and place. The message may be the program's own code; and near the end of the stack, where a
    RecursionError comes from, nothing that goes deeper can be called.
    """
    name = type(error).__name__
    try:
        told = f"{name}: {error}"
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        if place is None:
            return told
        return f"{told} ({os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno})"
    except Exception:
        return name
