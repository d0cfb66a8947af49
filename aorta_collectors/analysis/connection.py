"""An open DuckDB in which captures are read where they lie.

Nothing is copied, and memory stays bounded whatever the size of the files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from aorta_collectors.analysis.columns import literal, quoted
from aorta_collectors.errors import CollectorsError

if TYPE_CHECKING:
    import duckdb
    from typing_extensions import Self

_MEMORY = "600MB"
# Each thread reads with buffers of its own, some 60 MB.
_MOST_THREADS = 8
_POLL_S = 0.2

Row = tuple[Any, ...]
#: Told which part of a query is done, from 0 to 1, a few times a second.
Progress = Callable[[float], None]


class Connection:
    """A context manager.

    Args:
        progress: Of long queries.

    Raises:
        CollectorsError: DuckDB is not installed.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        try:
            import duckdb
        except ImportError:
            raise CollectorsError(
                "duckdb is not installed. It reads the records: pip install 'aorta-collectors[report]'"
            ) from None
        self._progress = progress
        self._error = duckdb.Error
        self._links = itertools.count()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query's result.

        Raises:
            CollectorsError: It cannot be answered.
        """
        with self.asked():
            return self.connection.execute(sql, list(parameters)).fetchall()

    def dicts(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The same, each row by the names of its columns."""
        with self.asked():
            cursor = self.connection.execute(sql, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def batches(self, sql: str, parameters: Sequence[Any] = (), size: int = 10_000) -> Iterator[list[Row]]:
        """The same, some rows at a time, for results that are larger than memory."""
        with self.asked():
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

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
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

    def table(self, name: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
        path = self._place / f"{name}.jsonl"
        with path.open("wb") as stream:
            for row in rows:
                stream.write(orjson.dumps({key: row.get(key) for key in columns}, option=orjson.OPT_APPEND_NEWLINE))
        source = f"read_json({quoted(str(path))}, format = 'newline_delimited', columns = {literal(columns)})"
        self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
        path.unlink()

    def lines(self, name: str, columns: Mapping[str, str], files: Sequence[str], where: str = "true") -> None:
        """Make a view of lines of JSON, with `filename` beside their own columns. What is no JSON has all NULL.

        Args:
            files: Of `readable`.
            where: Which lines are wanted.
        """
        if files:
            source = (
                f"read_json([{', '.join(map(quoted, files))}], format = 'newline_delimited', ignore_errors = true, "
                f"filename = true, columns = {literal(columns)})"
            )
        else:
            nothing = ", ".join(
                f"NULL::{type_} AS {column}" for column, type_ in {**columns, "filename": "VARCHAR"}.items()
            )
            source = f"(SELECT {nothing} LIMIT 0)"
        self.connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {source} WHERE {where}")

    def readable(self, path: Path) -> str:
        """The path, or one beside it: DuckDB takes *, ? and [ in a path for a pattern."""
        absolute = str(path.absolute())
        if not set(absolute) & set("*?["):
            return absolute
        link = self._place / f"link{next(self._links)}.jsonl"
        link.symlink_to(absolute)
        return str(link)
