"""DuckDB over the lines that one process of numerics left: the views `spans`, `stats`, `steps` and `escalations`.

A view has the fields of the schema as columns. A line that is none, such as one that a killed process tore off, is
passed over. There is one process at a time: a view of all would open the files of hundreds of ranks for each question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from aorta_collectors.analysis.captures import NUMERICS, Process
from aorta_collectors.analysis.columns import columns_of
from aorta_collectors.analysis.connection import Connection, Progress
from aorta_collectors.schema_check import load_schema

#: Kind of a file of lines -> what its schema is called, after "numerics.".
SCHEMAS = {"spans": "span", "stats": "stats", "steps": "step", "escalations": "escalation"}


class Lines(Connection):
    """A context manager.

    Args:
        progress: Of long queries.

    Raises:
        CollectorsError: DuckDB is not installed.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        super().__init__(progress)
        self._columns = {kind: columns_of(load_schema(f"numerics.{SCHEMAS[kind]}")) for kind in NUMERICS.lines}

    def look_at(self, process: Process) -> None:
        """Make the views those of this process."""
        with self.asked():
            for kind, columns in self._columns.items():
                files = [self.readable(process.files[kind])] if process.sizes.get(kind) else []
                self.lines(kind, columns, files, where="step IS NOT NULL")


def json_object(text: object) -> Mapping[str, Any]:
    """What a column of JSON holds; empty for what is no object. Lines are not checked against their schema."""
    try:
        found = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def number(value: object) -> float:
    """Of such an object; 0 for what is no finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
