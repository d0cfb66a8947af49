"""The records of some trials as numbered series and points, the two tables that all charts of a report are made of.

A series is one tensor of one layer over the steps of a trial, on all ranks. Points have no text, so that ten million of
them are a few hundred megabytes, which DuckDB keeps on disk where memory is short. The records are read twice for that,
however many charts follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.captures import Trial
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.magnitude import PLACE, ROLE, severity

_COLUMNS = f"""coalesce(r.layer, '') AS layer, {ROLE} AS role, coalesce(r.direction, '') AS direction,
    coalesce(r.param_name, '') AS param_name, coalesce(r.tensor_path, '') AS tensor_path, {PLACE} AS place"""
_BY = "layer, role, direction, param_name, tensor_path, place"


@dataclass(frozen=True)
class Series:
    """One tensor of one layer over the steps of a trial.

    Attributes:
        number: Its id in the tables. Numbers of one trial are in execution order.
        place: Of a followed tensor, where it was read.
        largest: Largest finite magnitude; None where nothing was finite.
        first_bad: Step; None where it never is.
    """

    number: int
    layer: str
    role: str
    direction: str
    param_name: str
    tensor_path: str
    place: str
    dtype: str
    largest: float | None
    first_bad: int | None

    @property
    def key(self) -> tuple[str, ...]:
        """What the same tensor has in another cell."""
        return self.layer, self.role, self.direction, self.param_name, self.tensor_path, self.place


_FIELDS = "id, layer, role, direction, param_name, tensor_path, place, dtype, largest, first_bad"


class Points:
    """The tables `series`, `points` and `steps` for some trials.

    Trials are known by their index in `trials` (tid), processes by theirs in the trial's.
    """

    def __init__(self, database: Database, trials: Sequence[Trial]) -> None:
        self._database = database
        self.trials = tuple(trials)
        ask = database.rows
        processes = [
            (tid, index, process.rank, *trial.key, process.stem)
            for tid, trial in enumerate(trials)
            for index, process in enumerate(trial.processes)
        ]
        names = ("tid", "number", "rank", "run", "cell", "trial", "process")
        columns = [list(column) for column in zip(*processes, strict=True)] or [[] for _ in names]
        types = ("INTEGER", "INTEGER", "INTEGER", *("VARCHAR",) * 4)
        unnested = (f"unnest(?::{type_}[]) AS {name}" for name, type_ in zip(names, types, strict=True))
        ask(f"CREATE OR REPLACE TEMP TABLE chosen AS SELECT {', '.join(unnested)}", columns)
        with database.joins_as_written():
            # A followed tensor's places come in the order in which the first batch came there: within a step, the
            # batches in them are not the same.
            ask(f"""CREATE OR REPLACE TEMP TABLE series AS
                SELECT (row_number() OVER (ORDER BY tid, part, stage, seq, first_t, {_BY}))::INTEGER AS id, *
                FROM (SELECT c.tid, {_COLUMNS}, min(r.position[4]) AS part, min(r.position[5]) AS stage,
                    min(CASE WHEN r.direction = 'pipeline' THEN 0 ELSE coalesce(r.seq, 0) END) AS seq,
                    min(CASE WHEN r.direction = 'pipeline' OR r.seq IS NULL THEN r.t END) AS first_t,
                    min(r.dtype) AS dtype, max(abs(r.finite_abs_max)) AS largest,
                    min(r.step) FILTER (r.kind IS NOT NULL) AS first_bad
                    FROM records r JOIN chosen c USING (run, cell, trial, process) GROUP BY ALL)""")
            ask(f"""CREATE OR REPLACE TEMP TABLE points AS
                SELECT s.tid, s.id AS series, q.process, q.rank, q.step, q.magnitude, q.severity,
                    q.nan_count, q.inf_count, q.huge_count, q.numel
                FROM (SELECT c.tid, {_COLUMNS}, c.number AS process, c.rank, r.step, abs(r.finite_abs_max) AS magnitude,
                    ({severity("r.kind")})::TINYINT AS severity, r.nan_count, r.inf_count, r.huge_count, r.numel
                    FROM records r JOIN chosen c USING (run, cell, trial, process)) q
                JOIN series s USING (tid, {_BY})""")
        ask("""CREATE OR REPLACE TEMP TABLE steps AS
            SELECT tid, step, (row_number() OVER (PARTITION BY tid ORDER BY step) - 1)::INTEGER AS place
            FROM (SELECT DISTINCT tid, step FROM points)""")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._database.rows(sql, parameters)

    def series(self, where: str, parameters: Sequence[Any], order: str = "id", most: int = 1) -> list[Series]:
        """Some of them, by a condition in SQL."""
        sql = f"SELECT {_FIELDS} FROM series WHERE {where} ORDER BY {order} LIMIT {most}"
        return [Series(*row) for row in self.rows(sql, parameters)]

    def of(self, tid: int, found: Mapping[str, Any]) -> Series | None:
        """The series of a bad value; None where no record of its layer was written.

        Of a value that was read for the origin alone there is none, and what the stock logger tells of one names no
        tensor: then it is the layer's series that goes bad first.
        """
        asked: list[Any] = [tid, found.get("layer") or ""]
        place = ""
        if found.get("direction") == "pipeline":
            place = " ".join(str(found[key]) for key in ("phase", "checkpoint") if found.get(key))
        exact = [found.get(key) or "" for key in ("direction", "role", "param_name", "tensor_path")]
        order = "(direction <> ?), (role <> ?), (param_name <> ?), (tensor_path <> ?), (place <> ?)"
        there = self.series("tid = ? AND layer = ?", [*asked, *exact, place], f"{order}, first_bad NULLS LAST, id")
        return there[0] if there else None

    def same(self, tid: int, key: tuple[str, ...]) -> Series | None:
        """The same tensor in another trial."""
        condition = " AND ".join(f"{name.strip()} = ?" for name in _BY.split(","))
        there = self.series(f"tid = ? AND {condition}", [tid, *key])
        return there[0] if there else None

    def count(self, tid: int) -> tuple[int, int]:
        """How many series and how many recorded steps a trial has."""
        ((series, steps),) = self.rows(
            "SELECT (SELECT count(*) FROM series WHERE tid = ?), (SELECT count(*) FROM steps WHERE tid = ?)", [tid, tid]
        )
        return int(series), int(steps)
