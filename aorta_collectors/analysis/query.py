"""SQL of a user's over the captures: what may be asked, and the views that there are to ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.connection import Row
from aorta_collectors.analysis.database import Database
from aorta_collectors.errors import CollectorsError
from aorta_collectors.schema_check import load_schema

EXAMPLES = (
    (
        "The first bad records, over all ranks",
        "SELECT cell, rank, step, layer, role, kind FROM records WHERE bad ORDER BY cell, trial, position LIMIT 10",
    ),
    (
        "The largest magnitudes by layer",
        "SELECT layer, role, max(finite_abs_max) AS largest FROM records GROUP BY ALL ORDER BY largest DESC LIMIT 10",
    ),
    (
        "Each trial, and where it first went bad",
        "SELECT cell, trial, passed, first_bad->>'layer' AS layer FROM trials LEFT JOIN summaries USING (cell, trial)",
    ),
)
_SCHEMAS = {"records": "layer_numerics.record", "summaries": "layer_numerics.summary", "receipts": "receipt"}
_PURPOSES = {
    "records": "One tensor of one layer at one moment of one step.",
    "summaries": "What one process saw.",
    "receipts": "What verification found after a trial, for one collector.",
    "trials": "Each trial of the run, whether it was observed or not.",
}
_OWN = {
    "run": "The sweep's directory below PATH; . where there is one sweep, or none.",
    "cell": "The cell's name; - without a sweep.",
    "trial": "The trial's coordinates, such as d0_m0_t0; - without a sweep.",
    "process": "The process, by the stem of its files' names, such as rank0.",
    "restart": "How often torchrun had started the process anew before.",
    "training_step": "Training steps begun: by it ranks are lined up, since a rank may evaluate alone.",
    "position": "Order by it for the records of a trial's ranks in one order.",
    "layer": "module_path, or layer_name where there is none.",
    "kind": "The worst in the tensor: nan, inf, huge or oob; NULL where it is clean.",
    "workload": "What ran.",
    "exit_status": "How the trial ended, as aorta says it.",
    "passed": "Whether the trial passed; NULL while it runs.",
    "mitigations": "Mitigations in force.",
    "environment": "The environment's name.",
    "wall_clock_s": "Duration of the trial in seconds.",
    "verdict": "Of layer_numerics' receipt.",
    "reason": "Its sentence.",
    "artifacts": "Where layer_numerics wrote.",
    "num_processes": "Processes that wrote.",
}


@dataclass(frozen=True)
class Column:
    """One column of a view; `type` is DuckDB's."""

    name: str
    type: str
    description: str


@dataclass(frozen=True)
class View:
    name: str
    purpose: str
    columns: tuple[Column, ...]


class QueryError(CollectorsError):
    """SQL that cannot be run. The message has several lines: below the SQL's own a caret shows the place."""

    exit_code = 2


class Answer:
    """The result of a query, from which rows are fetched as they are asked for.

    Attributes:
        columns: Name and DuckDB's type of each.
    """

    def __init__(self, database: Database, sql: str) -> None:
        self._batches = database.batches(sql)
        # Running begins with the first batch, and what the columns are is known from then on.
        self._first = next(self._batches, [])
        described = database.connection.description or ()
        self.columns = [(str(column[0]), str(column[1])) for column in described]

    def rows(self) -> Iterator[Row]:
        yield from self._first
        for batch in self._batches:
            yield from batch


def ask(database: Database, sql: str) -> Answer:
    """Run one statement that reads.

    What it reads may also be other files of the user's; nothing is written, and no extension is loaded, so that nothing
    goes over the network.

    Raises:
        QueryError: It is no single statement that reads, or DuckDB does not take it.
    """
    import duckdb

    try:
        statements = database.connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(str(error)) from None
    if len(statements) != 1:
        raise QueryError(f"one SQL statement is expected, got {len(statements)}")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise QueryError(
            f"a statement that reads is expected (SELECT, FROM, WITH, DESCRIBE, SUMMARIZE), got {kind}; "
            "-o FILE writes the result"
        )
    database.connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    try:
        return Answer(database, sql)
    except CollectorsError as error:
        raise QueryError(str(error)) from None


def views(database: Database) -> tuple[View, ...]:
    """What can be asked, with the schemas' words."""
    return tuple(View(name, purpose, _columns(database, name)) for name, purpose in _PURPOSES.items())


def _columns(database: Database, view: str) -> tuple[Column, ...]:
    properties: dict[str, Any] = load_schema(_SCHEMAS[view])["properties"] if view in _SCHEMAS else {}
    return tuple(
        Column(name, type_, properties.get(name, {}).get("description") or _OWN.get(name, ""))
        for name, type_, *_ in database.rows(f"DESCRIBE {view}")
    )
