"""Parquet and CSV of numerics: spans, stats, steps, escalations and bricks, a file each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import NUMERICS, Captures, Process, Trial
from aorta_collectors.analysis.columns import columns_of, quoted
from aorta_collectors.analysis.connection import Connection
from aorta_collectors.analysis.numerics.tables import SCHEMAS
from aorta_collectors.schema_check import load_schema

_PLACE = {"run": "VARCHAR", "cell": "VARCHAR", "trial": "VARCHAR", "process": "VARCHAR"}


def write_tables(connection: Connection, captures: Captures, target: Path, ending: str, options: str) -> None:
    """Write what processes of numerics left, each line with the run, cell, trial and process that it is from.

    Args:
        target: A directory that is there.
        ending: Of the files' names, without a dot.
        options: Of DuckDB's COPY.
    """
    processes = [(trial, process) for trial in captures.trials for process in trial.processes]
    for kind in NUMERICS.lines:
        columns = columns_of(load_schema(f"numerics.{SCHEMAS[kind]}"))
        files = {
            connection.readable(process.files[kind]): _place(trial, process)
            for trial, process in processes
            if process.sizes.get(kind)
        }
        connection.table(f"of_{kind}", {**_PLACE, "file": "VARCHAR"}, _with_files(files))
        connection.lines(f"lines_of_{kind}", columns, list(files), where="step IS NOT NULL")
        selected = (
            f"SELECT p.run, p.cell, p.trial, p.process, r.* EXCLUDE (filename) "
            f"FROM lines_of_{kind} r JOIN of_{kind} p ON r.filename = p.file"
        )
        connection.rows(f"COPY ({selected}) TO {quoted(str(target / f'{kind}.{ending}'))} ({options})")
    rows = columns_of(load_schema("numerics.summary")["properties"]["bricks"]["items"])
    bricks = [
        {**_place(trial, process), "rank": process.rank, **brick}
        for trial, process in processes
        for brick in process.summary.get("bricks", ())
    ]
    connection.table("bricks", {**_PLACE, "rank": "BIGINT", **rows}, bricks)
    connection.rows(f"COPY bricks TO {quoted(str(target / f'bricks.{ending}'))} ({options})")


def _place(trial: Trial, process: Process) -> dict[str, str]:
    return {"run": trial.run, "cell": trial.cell, "trial": trial.trial, "process": process.stem}


def _with_files(files: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for file, place in files.items():
        yield {**place, "file": file}
