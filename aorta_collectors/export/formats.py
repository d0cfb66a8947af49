"""The formats by name: what each makes, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from aorta_collectors.analysis.captures import Captures
from aorta_collectors.analysis.database import Database
from aorta_collectors.export import openmetrics, tables, tensorboard, trace


@dataclass(frozen=True)
class Request:
    """What is wanted.

    Attributes:
        records: A condition on layer_numerics' records, in SQL.
        tracks: Most counters of a process of layer_numerics, in a trace.
        numerics: What numerics left; None where it left nothing.
    """

    records: str
    tracks: int
    numerics: Captures | None = None


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        write: write(database, target, request). The database has no trials where layer_numerics left nothing.
        files: Where it makes a directory, the pattern that its files' names have; None where it makes a file.
        has_records: Whether records are in it.
        has_numerics: Whether what numerics left is.
    """

    write: Callable[[Database, Path, Request], None]
    files: str | None = None
    has_records: bool = True
    has_numerics: bool = True


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "parquet": Format(
            lambda db, path, asked: tables.write_parquet(db, path, asked.records, asked.numerics), "*.parquet"
        ),
        "csv": Format(lambda db, path, asked: tables.write_csv(db, path, asked.records, asked.numerics), "*.csv"),
        "trace": Format(
            lambda db, path, asked: trace.write_trace(db, path, asked.records, asked.tracks, asked.numerics)
        ),
        "tensorboard": Format(
            lambda db, path, asked: tensorboard.write_tensorboard(db, path, asked.records),
            tensorboard.FILES,
            has_numerics=False,
        ),
        "openmetrics": Format(
            lambda db, path, asked: openmetrics.write_openmetrics(db.captures, path, asked.numerics), has_records=False
        ),
    }
)
