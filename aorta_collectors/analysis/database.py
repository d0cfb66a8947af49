"""DuckDB over captures: the views `records`, `summaries`, `receipts` and `trials`.

Records are read where they lie, when a query asks for them: nothing is copied, and memory stays bounded whatever their
size. Views have the fields of the schemas as columns. Besides, all have `run`, `cell` and `trial`; records and
summaries have `process`, the stem of the files' names; and records have:

| column | what |
|---|---|
| restart | the attempt of the process |
| training_step | training steps begun, by which ranks are lined up |
| layer | module_path, or layer_name where a record has none, as the stock logger's |
| kind | the worst that is in the tensor: nan, inf, huge or oob; NULL where it is clean |
| position | DOUBLE[], by which ORDER BY puts a trial's records of all ranks into one order (layer_numerics/order.py) |

A line that is no record, such as one that a killed process tore off, is passed over; `unreadable_lines` counts them.
Numbers of records are finite or NULL: a file may say 1e999 all the same. position[6] is the place within the step.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from aorta_collectors.analysis.captures import Captures, Trial
from aorta_collectors.analysis.columns import columns_of, literal, quoted
from aorta_collectors.errors import CollectorsError
from aorta_collectors.schema_check import load_schema

if TYPE_CHECKING:
    import duckdb

_MEMORY = "600MB"
# Each thread reads with buffers of its own, some 60 MB.
_MOST_THREADS = 8
_POLL_S = 0.2
_PLACE = {"run": "VARCHAR", "cell": "VARCHAR", "trial": "VARCHAR"}
_TRIALS = {
    **_PLACE,
    "workload": "VARCHAR",
    "exit_status": "VARCHAR",
    "passed": "BOOLEAN",
    "mitigations": "VARCHAR[]",
    "environment": "VARCHAR",
    "wall_clock_s": "DOUBLE",
    "verdict": "VARCHAR",
    "reason": "VARCHAR",
    "artifacts": "VARCHAR",
    "num_processes": "BIGINT",
}
_PROCESSES = {
    **_PLACE,
    "process": "VARCHAR",
    "file": "VARCHAR",
    "restart": "BIGINT",
    "by_part": "BOOLEAN",
    "stage": "BIGINT",
}
# As layer_numerics/order.py says it.
_PART = """CASE WHEN NOT p.by_part THEN 0
    WHEN r.direction = 'pipeline' THEN CASE WHEN coalesce(r.checkpoint, '') = '' THEN 0 ELSE 1 END
    ELSE greatest(CASE r.direction WHEN 'fwd' THEN 1 WHEN 'bwd' THEN 2 WHEN 'grad' THEN 3 ELSE 0 END,
                  CASE WHEN r.recompute THEN 2 ELSE 0 END) END"""
# The stock logger's records have no seq; their time is that of the process.
_POSITION = f"""[p.restart, r.step - coalesce(r.evaluation_steps, 0), CASE WHEN r.evaluation THEN r.step ELSE 0 END,
    {_PART}, CASE WHEN {_PART} < 2 THEN p.stage ELSE -p.stage END,
    coalesce(r.seq, r.t, 0), coalesce(r.rank, 0)]::DOUBLE[]"""
_KIND = """CASE WHEN r.nan_count > 0 THEN 'nan' WHEN r.inf_count > 0 THEN 'inf' WHEN r.huge_count > 0 THEN 'huge'
    WHEN r.oob_count > 0 THEN 'oob' END"""
# Of a line that is no JSON, all columns are NULL.
_IS_RECORD = "r.type = 'layer_step' AND r.step IS NOT NULL"

Row = tuple[Any, ...]
#: Told which part of a query is done, from 0 to 1, a few times a second.
Progress = Callable[[float], None]


class Database:
    """An open connection; a context manager.

    Args:
        captures: What the views are of.
        progress: Of long queries.

    Raises:
        CollectorsError: DuckDB is not installed.
    """

    def __init__(self, captures: Captures, progress: Progress | None = None) -> None:
        try:
            import duckdb
        except ImportError:
            raise CollectorsError(
                "duckdb is not installed. It reads the records: pip install 'aorta-collectors[report]'"
            ) from None
        self.captures = captures
        self._progress = progress
        self._error = duckdb.Error
        self._stack = contextlib.ExitStack()
        self._place = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="aorta-collectors-")))
        self.connection: duckdb.DuckDBPyConnection = self._stack.enter_context(duckdb.connect(":memory:"))
        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        for setting in (
            f"memory_limit = '{_MEMORY}'",
            f"threads = {threads}",
            f"temp_directory = {quoted(str(self._place))}",
            "enable_progress_bar = false",
        ):
            self.connection.execute(f"SET {setting}")
        with self._asked():
            self._make_views()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query's result.

        Raises:
            CollectorsError: It cannot be answered.
        """
        with self._asked():
            return self.connection.execute(sql, list(parameters)).fetchall()

    def dicts(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The same, each row by the names of its columns."""
        with self._asked():
            cursor = self.connection.execute(sql, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def batches(self, sql: str, parameters: Sequence[Any] = (), size: int = 10_000) -> Iterator[list[Row]]:
        """The same, some rows at a time, for results that are larger than memory."""
        with self._asked():
            cursor = self.connection.execute(sql, list(parameters))
            while batch := cursor.fetchmany(size):
                yield batch

    @contextlib.contextmanager
    def joins_as_written(self) -> Iterator[None]:
        """Within this, what stands on the right of a join is kept in memory, and the left side streams past it.

        For joins of records with a table: DuckDB takes files of JSON for a few rows, and would keep those.
        """
        self.connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            yield
        finally:
            self.connection.execute("RESET disabled_optimizers")

    def unreadable_lines(self) -> int:
        """How many lines of the records' files are no records. Reads all of them."""
        return int(self.rows(f"SELECT count(*) FROM lines r WHERE ({_IS_RECORD}) IS NOT TRUE")[0][0])

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Tell of progress while a query runs, and turn DuckDB's errors into ours."""
        done = threading.Event()

        def poll() -> None:
            while not done.wait(_POLL_S):
                if self._progress is not None:
                    self._progress(max(0.0, self.connection.query_progress()) / 100)

        watcher = threading.Thread(target=poll, daemon=True) if self._progress is not None else None
        if watcher is not None:
            watcher.start()
        try:
            yield
        except self._error as error:
            raise CollectorsError(f"the query cannot be answered: {error}") from None
        except RuntimeError as error:  # as which DuckDB hands on Ctrl-C
            if "interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise
        finally:
            done.set()
            if watcher is not None:
                watcher.join()

    def _make_views(self) -> None:
        trials = self.captures.trials
        processes = [(trial, process) for trial in trials for process in trial.processes]
        self._table("trials", _TRIALS, (_trial_row(trial) for trial in trials))
        receipt_columns = columns_of(load_schema("receipt"))
        self._table(
            "receipts",
            {**_PLACE, **receipt_columns},
            (
                {**orjson.loads(receipt.to_json()), **_place(trial)}
                for trial in trials
                for receipt in trial.receipts.values()
            ),
        )
        self._table(
            "summaries",
            {**_PLACE, "process": "VARCHAR", **columns_of(load_schema("layer_numerics.summary"))},
            ({**process.summary, **_place(trial), "process": process.stem} for trial, process in processes),
        )
        files: dict[str, Mapping[str, Any]] = {}
        for trial, process in processes:
            if process.records is None:
                continue
            line = process.line
            files[self._readable(process.records, len(files))] = {
                **_place(trial),
                "process": process.stem,
                "restart": line.restart,
                "by_part": line.by_part,
                "stage": line.stage,
            }
        self._table("processes", _PROCESSES, ({**row, "file": file} for file, row in files.items()))
        columns = columns_of(load_schema("layer_numerics.record"))
        if files:
            listed = ", ".join(map(quoted, files))
            source = (
                f"read_json([{listed}], format = 'newline_delimited', ignore_errors = true, filename = true, "
                f"columns = {literal(columns)})"
            )
        else:
            nothing = ", ".join(
                f"NULL::{type_} AS {name}" for name, type_ in {**columns, "filename": "VARCHAR"}.items()
            )
            source = f"(SELECT {nothing} LIMIT 0)"
        self.connection.execute(f"CREATE VIEW lines AS SELECT * FROM {source}")
        fields = ", ".join(
            f"CASE WHEN isfinite(r.{name}) THEN r.{name} END AS {name}" if type_ == "DOUBLE" else f"r.{name}"
            for name, type_ in columns.items()
        )
        self.connection.execute(
            f"CREATE VIEW records AS SELECT p.run, p.cell, p.trial, p.process, p.restart, "
            f"r.step - coalesce(r.evaluation_steps, 0) AS training_step, {_POSITION} AS position, "
            f"coalesce(nullif(r.module_path, ''), r.layer_name) AS layer, {_KIND} AS kind, {fields} "
            f"FROM lines r JOIN processes p ON r.filename = p.file WHERE {_IS_RECORD}"
        )

    def _table(self, name: str, columns: Mapping[str, str], rows: Iterator[Mapping[str, Any]]) -> None:
        path = self._place / f"{name}.jsonl"
        with path.open("wb") as stream:
            for row in rows:
                stream.write(orjson.dumps({key: row.get(key) for key in columns}, option=orjson.OPT_APPEND_NEWLINE))
        source = f"read_json({quoted(str(path))}, format = 'newline_delimited', columns = {literal(columns)})"
        self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
        path.unlink()

    def _readable(self, path: Path, number: int) -> str:
        """The path, or one beside it: DuckDB takes *, ? and [ in a path for a pattern."""
        absolute = str(path.absolute())
        if not set(absolute) & set("*?["):
            return absolute
        link = self._place / f"{number}.jsonl"
        link.symlink_to(absolute)
        return str(link)


def _place(trial: Trial) -> dict[str, str]:
    return {"run": trial.run, "cell": trial.cell, "trial": trial.trial}


def _trial_row(trial: Trial) -> dict[str, Any]:
    record = trial.record
    environment = record.get("execution_env")
    receipt = trial.receipt
    return {
        **_place(trial),
        "workload": record.get("workload"),
        "exit_status": record.get("exit_status"),
        "passed": trial.passed,
        "mitigations": record.get("mitigations_applied"),
        "environment": environment.get("name") if isinstance(environment, dict) else None,
        "wall_clock_s": record.get("wall_clock_sec"),
        "verdict": receipt.verdict if receipt is not None else None,
        "reason": receipt.reason if receipt is not None else None,
        "artifacts": str(trial.artifacts),
        "num_processes": len(trial.processes),
    }
