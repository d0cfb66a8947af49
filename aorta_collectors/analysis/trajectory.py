"""How the magnitudes of some layers' tensors go over the steps, and where they go bad.

A series is one tensor of one layer in one process. DuckDB reads the records twice: for the names that are there, and
for the layers that were asked for, whose calls within a step become one value. What is fetched is bounded by the
series times the points, except where each step is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.layer_names import meant
from aorta_collectors.analysis.magnitude import AGGREGATES, KINDS, PLACE, ROLE, magnitude
from aorta_collectors.analysis.series import Elsewhere, Point, Series, Trajectory
from aorta_collectors.errors import ArtifactError

#: Rows of a table before the first bad step, after it, and at the end where nothing is bad.
_BEFORE, _AFTER, _LAST = 14, 5, 20
# Layers that an error names one by one.
_NAMED = 4
_KEYS = "run, cell, trial, process, layer, role, param_name, tensor_path, place, invocation"


@dataclass(frozen=True)
class Wanted:
    """What of some layers is wanted.

    Attributes:
        layers: Exact names, globs, or ends of names such as scores for blocks.0.scores.
        roles: None named: act of layers that have it, all of the others.
        first, last: Steps, both included.
        invocation: The call within a step; None for the worst of all.
        most: Series.
        points: Of each series.
        tail: Rows at the end; None for those around the first bad step.
        every: Rows of all steps.
    """

    layers: Sequence[str]
    roles: Sequence[str] = ()
    first: int | None = None
    last: int | None = None
    invocation: int | None = None
    most: int = 8
    points: int = 60
    tail: int | None = None
    every: bool = False


@dataclass(frozen=True)
class _Named:
    layer: str
    name: str | None
    role: str
    first_step: int
    last_step: int
    first_bad: int | None


def trajectory(database: Database, wanted: Wanted) -> Trajectory:
    """The series of the layers that are wanted.

    Raises:
        ArtifactError: Nothing is recorded of a layer, of a role, or in these steps; the error says what is.
    """
    there = [
        _Named(*row)
        for row in database.rows(
            f"SELECT layer, layer_name, {ROLE}, min(step), max(step), min(step) FILTER (kind IS NOT NULL) "
            "FROM records r WHERE layer IS NOT NULL GROUP BY ALL ORDER BY ALL"
        )
    ]
    if not there:
        raise ArtifactError(f"no records are in {database.captures.path}: there are summaries at most")
    layers = meant([(named.layer, named.name) for named in there], wanted.layers, database.captures.path)
    named_so = ", ".join(layers) if len(layers) <= _NAMED else f"these {len(layers)} layers"
    taken = set(layers)
    of_layers = [named for named in there if named.layer in taken]
    roles = {named.role for named in of_layers}
    if unknown := [role for role in wanted.roles if role not in roles]:
        raise ArtifactError(
            f"nothing is recorded of role {unknown[0]!r} of {named_so}; there is: {', '.join(sorted(roles))}"
        )
    have_act = {named.layer for named in of_layers if named.role == "act"}
    chosen = [
        named
        for named in of_layers
        if (named.role in wanted.roles if wanted.roles else named.role == "act" or named.layer not in have_act)
    ]
    _take(database, chosen, wanted)
    first, last = database.rows("SELECT min(step), max(step) FROM magnitudes")[0]
    if first is None:
        low, high = min(named.first_step for named in chosen), max(named.last_step for named in chosen)
        call = "" if wanted.invocation is None else f"call {wanted.invocation} of "
        asked = "" if (wanted.first, wanted.last) == (None, None) else " in the steps asked for"
        raise ArtifactError(f"nothing is recorded of {call}{named_so}{asked}; there are steps {low} to {high}")
    size = max(1, -(-(last - first + 1) // wanted.points))
    points = _points(database, wanted.most, first, size)
    rows = _rows(database, wanted)
    listed = database.dicts("SELECT * EXCLUDE (turn) FROM series WHERE id <= ? ORDER BY id", [wanted.most])
    series = tuple(
        Series(**{**row, "first_kind": KINDS[row["first_kind"]]}, points=points[id_], rows=rows.get(id_, ()))
        for row in listed
        for id_ in [row.pop("id")]
    )
    recorded = set(database.rows("SELECT DISTINCT run, cell, trial FROM magnitudes"))
    return Trajectory(
        tuple(layers),
        first,
        last,
        size,
        series,
        database.rows("SELECT count(*) FROM series")[0][0] - len(series),
        _elsewhere(of_layers, chosen),
        tuple(trial.key for trial in database.captures.trials if trial.key not in recorded),
    )


def _elsewhere(of_layers: Sequence[_Named], chosen: Sequence[_Named]) -> tuple[Elsewhere, ...]:
    shown = {(named.layer, named.role) for named in chosen}
    bad: dict[tuple[str, str], int] = {}
    for named in of_layers:
        key = named.layer, named.role
        if named.first_bad is not None and key not in shown:
            bad[key] = min(named.first_bad, bad.get(key, named.first_bad))
    return tuple(sorted((Elsewhere(*key, step) for key, step in bad.items()), key=lambda entry: entry.first_bad))


def _take(database: Database, chosen: Sequence[_Named], wanted: Wanted) -> None:
    """Make the tables `magnitudes`, a row for each step of each series, and `series`, in the order of interest."""
    call = wanted.invocation
    database.rows(
        f"""CREATE OR REPLACE TEMP TABLE magnitudes AS
        SELECT run, cell, trial, process, layer, {ROLE} AS role, coalesce(param_name, '') AS param_name,
            coalesce(tensor_path, '') AS tensor_path, {PLACE} AS place, coalesce(?::BIGINT, 0) AS invocation, step,
            any_value(rank) AS rank, {AGGREGATES}
        FROM records r
        WHERE (layer, {ROLE}) IN (SELECT (unnest(?::VARCHAR[]), unnest(?::VARCHAR[])))
            AND step >= coalesce(?::BIGINT, step) AND step <= coalesce(?::BIGINT, step)
            AND (?::BIGINT IS NULL OR r.invocation = ?::BIGINT)
        GROUP BY ALL""",
        [
            call,
            [named.layer for named in chosen],
            [named.role for named in chosen],
            wanted.first,
            wanted.last,
            call,
            call,
        ],
    )
    order = f"first_bad NULLS LAST, peak DESC NULLS LAST, rank, {_KEYS}"
    database.rows(
        f"""CREATE OR REPLACE TEMP TABLE series AS
        WITH whole AS (
            SELECT {_KEYS}, any_value(rank) AS rank, min(step) AS first_step, max(step) AS last_step,
                count(*) AS steps, min(step) FILTER (severity > 0) AS first_bad,
                coalesce(arg_min(severity, step) FILTER (severity > 0), 0) AS first_kind,
                max(abs_max) AS peak, arg_max(dtype, coalesce(abs_max, 0)) AS dtype
            FROM magnitudes GROUP BY ALL
        ), in_turn AS (
            SELECT *, row_number() OVER (PARTITION BY run, cell, trial, process ORDER BY {order}) AS turn FROM whole
        )
        SELECT *, row_number() OVER (ORDER BY turn, {order}) AS id FROM in_turn"""
    )


def _points(database: Database, most: int, first: int, size: int) -> dict[int, tuple[Point, ...]]:
    rows = database.dicts(
        f"""SELECT id, (m.step - ?) // ? AS bucket, min(m.step) AS step, count(*) AS merged,
            min(m.step) FILTER (severity > 0) AS bad_step, max(abs_max) AS abs_max, min(low) AS low, max(high) AS high,
            sum(nans)::BIGINT AS nans, sum(infs)::BIGINT AS infs, sum(huge)::BIGINT AS huge, sum(oob)::BIGINT AS oob,
            sum(numel)::BIGINT AS numel, max(severity) AS severity, arg_max(m.dtype, coalesce(abs_max, 0)) AS dtype
        FROM magnitudes m JOIN series s USING ({_KEYS}) WHERE id <= ? GROUP BY id, bucket ORDER BY id, bucket""",
        [first, size, most],
    )
    return _by_series(rows)


def _rows(database: Database, wanted: Wanted) -> dict[int, tuple[Point, ...]]:
    rows = database.dicts(
        f"""WITH numbered AS (
            SELECT m.*, id, s.steps AS total, row_number() OVER w AS n,
                lag(abs_max) OVER w AS before, lag(m.step) OVER w AS step_before
            FROM magnitudes m JOIN series s USING ({_KEYS}) WHERE id <= ? WINDOW w AS (PARTITION BY id ORDER BY m.step)
        ), placed AS (SELECT *, min(n) FILTER (severity > 0) OVER (PARTITION BY id) AS bad_n FROM numbered)
        SELECT *, 1 AS merged, CASE WHEN severity > 0 THEN step END AS bad_step,
            CASE WHEN abs_max > 0 AND before > 0
                THEN pow(2, least(1000, (log2(abs_max) - log2(before)) / (step - step_before))) END AS growth
        FROM placed WHERE CASE WHEN ? THEN true WHEN ?::BIGINT IS NOT NULL THEN n > total - ?::BIGINT
            WHEN bad_n IS NULL THEN n > total - {_LAST} ELSE n BETWEEN bad_n - {_BEFORE} AND bad_n + {_AFTER} END
        ORDER BY id, step""",
        [wanted.most, wanted.every, wanted.tail, wanted.tail],
    )
    return _by_series(rows)


def _by_series(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[Point, ...]]:
    found: dict[int, list[Point]] = {}
    for row in rows:
        point = Point(row["step"], row["merged"], row["bad_step"], magnitude(row), row.get("growth"))
        found.setdefault(row["id"], []).append(point)
    return {id_: tuple(points) for id_, points in found.items()}
