"""Lines of JSON that a running program writes: those that are to their schema, and how many are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.schema_check import validator


class Fitting:
    """Picks them out.

    Args:
        schema: Of a line.

    Attributes:
        unreadable: Lines so far that are no such line.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.unreadable = 0

    def lines(self, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        """Their values. What does not fit is looked for by halves, since nearly always all fit."""
        if not lines:
            return []
        try:
            found = strict_json.loads_lines(lines)
            if validator(self._schema).fits(found):
                return found
        except ValueError:
            pass
        if len(lines) > 1:  # one of them is none
            middle = len(lines) // 2
            return self.lines(lines[:middle]) + self.lines(lines[middle:])
        self.unreadable += 1
        return []
