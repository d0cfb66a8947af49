"""Lines of JSON, as fast as they can be made: they are written between two steps of the program."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

_careful: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode

try:
    from orjson import dumps
except ImportError:  # a program can be observed where torch alone is installed
    encoded = _careful
else:

    def encoded(line: Mapping[str, Any]) -> str:
        """One line, without its end. What may not be finite is a text by now."""
        try:
            return dumps(line).decode()
        except TypeError:  # what orjson does not take: a lone surrogate in a name, an integer beyond 64 bits
            return _careful(line)
