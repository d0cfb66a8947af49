"""The formats by name: what each makes, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from aorta_collectors.analysis.database import Database
from aorta_collectors.export import openmetrics, tables, tensorboard, trace


@dataclass(frozen=True)
class Request:
    """What is wanted.

    Attributes:
        records: A condition on records, in SQL.
        tracks: Most counters of a process, in a trace.
    """

    records: str
    tracks: int


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        write: write(database, target, request).
        files: Where it makes a directory, the pattern that its files' names have; None where it makes a file.
        has_records: Whether records are in it.
    """

    write: Callable[[Database, Path, Request], None]
    files: str | None = None
    has_records: bool = True


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "parquet": Format(lambda db, path, asked: tables.write_parquet(db, path, asked.records), "*.parquet"),
        "csv": Format(lambda db, path, asked: tables.write_csv(db, path, asked.records), "*.csv"),
        "trace": Format(lambda db, path, asked: trace.write_trace(db, path, asked.records, asked.tracks)),
        "tensorboard": Format(
            lambda db, path, asked: tensorboard.write_tensorboard(db, path, asked.records), tensorboard.FILES
        ),
        "openmetrics": Format(lambda db, path, _: openmetrics.write_openmetrics(db.captures, path), has_records=False),
    }
)
