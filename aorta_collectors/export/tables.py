"""Parquet and CSV: a directory with a file for each of the views records, summaries, receipts and trials."""

from __future__ import annotations

from pathlib import Path

from aorta_collectors.analysis.columns import quoted
from aorta_collectors.analysis.database import Database

_VIEWS = ("records", "summaries", "receipts", "trials")


def write_parquet(database: Database, target: Path, wanted: str) -> None:
    """Compressed with zstd; columns have DuckDB's types, lists and all.

    Args:
        target: A directory that is there.
        wanted: A condition on records.
    """
    _copy(database, target, wanted, "parquet", "FORMAT parquet, COMPRESSION zstd")


def write_csv(database: Database, target: Path, wanted: str) -> None:
    """With a line of headings; lists and objects are text in DuckDB's way of writing them, or JSON."""
    _copy(database, target, wanted, "csv", "FORMAT csv, HEADER true")


def _copy(database: Database, target: Path, wanted: str, ending: str, options: str) -> None:
    for view in _VIEWS:
        file = quoted(str(target / f"{view}.{ending}"))
        selected = f"SELECT * FROM {view} WHERE {wanted if view == 'records' else 'true'}"
        database.rows(f"COPY ({selected}) TO {file} ({options})")
