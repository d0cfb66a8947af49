"""Parquet and CSV: a directory with a file for each of the views records, summaries, receipts and trials.

What numerics left has files of its own beside them (numerics_tables).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aorta_collectors.analysis.captures import Captures
from aorta_collectors.analysis.columns import quoted
from aorta_collectors.analysis.database import Database
from aorta_collectors.export.numerics_tables import write_tables

_VIEWS = ("records", "summaries", "receipts", "trials")


def write_parquet(database: Database, target: Path, wanted: str, numerics: Captures | None = None) -> None:
    """Compressed with zstd; columns have DuckDB's types, lists and all.

    Args:
        target: A directory that is there.
        wanted: A condition on records.
        numerics: What numerics left; None where it left nothing.
    """
    _copy(database, target, wanted, numerics, "parquet", "FORMAT parquet, COMPRESSION zstd")


def write_csv(database: Database, target: Path, wanted: str, numerics: Captures | None = None) -> None:
    """With a line of headings; lists and objects are text in DuckDB's way of writing them, or JSON."""
    _copy(database, target, wanted, numerics, "csv", "FORMAT csv, HEADER true")


def _copy(database: Database, target: Path, wanted: str, numerics: Captures | None, ending: str, options: str) -> None:
    if numerics is not None:
        write_tables(database, numerics, target, ending, options)
    for view in _views(database.captures, numerics is not None):
        file = quoted(str(target / f"{view}.{ending}"))
        selected = f"SELECT * FROM {view} WHERE {wanted if view == 'records' else 'true'}"
        database.rows(f"COPY ({selected}) TO {file} ({options})")


def _views(captures: Captures, beside_numerics: bool) -> Sequence[str]:
    """Those to write: beside what numerics left, none that would be empty."""
    if not beside_numerics or any(trial.processes for trial in captures.trials):
        return _VIEWS
    return ("receipts", "trials") if captures.trials else ()
