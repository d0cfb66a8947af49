"""The records of paired processes side by side, in SQL: a row of the table `compared` for each key on either side.

A key is the tensor (layer, role, direction, tensor path, parameter, and where a followed one was read), the training
step, the evaluation, the call and the batch. Strings are kept once, in `tensors`; all else is numbers, so that a
million records a side take some 200 MB, and what is more goes to disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aorta_collectors.analysis.compare_judgement import COUNTS, KEY, MOMENTS, NUMBERS, judged
from aorta_collectors.analysis.compare_pairs import Member, Pairing
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.tolerance import Tolerance

_IDENTITY = {
    "layer": "layer",
    "role": "coalesce(role, '')",
    "direction": "coalesce(direction, '')",
    "tensor_path": "coalesce(tensor_path, '')",
    "param_name": "coalesce(param_name, '')",
    "phase": "CASE WHEN direction = 'pipeline' THEN coalesce(phase, '') ELSE '' END",
    "checkpoint": "CASE WHEN direction = 'pipeline' THEN coalesce(checkpoint, '') ELSE '' END",
    "recompute": "coalesce(recompute, false)",
}
_FORM = {"dtype": "coalesce(dtype, '')", "shape": "coalesce(shape::VARCHAR, '')"}
#: What is kept of a record.
SHOWN = (*COUNTS, "numel", *NUMBERS, *MOMENTS)


def compare_records(database: Database, pairing: Pairing, tolerances: Mapping[str, Tolerance], exact: bool) -> None:
    """Make the tables `members`, `tensors`, `sides`, `steps`, `reached` and `compared`.

    Args:
        exact: Whether recorded numbers must be the same, of the same dtype.
    """
    _make_members(database, pairing)
    _fill(
        database,
        "CREATE TABLE tolerances (dtype VARCHAR, rtol DOUBLE, atol DOUBLE)",
        "tolerances",
        ((name, *tolerance) for name, tolerance in tolerances.items()),
    )
    every = {**_IDENTITY, **_FORM}
    named = ", ".join(f"{value} AS {name}" for name, value in every.items())
    identity = ", ".join(_IDENTITY)
    database.rows(
        f"CREATE TABLE tensors AS SELECT *, (dense_rank() OVER (ORDER BY {identity}))::INTEGER AS tensor, "
        f"(row_number() OVER ())::INTEGER AS form FROM (SELECT {named}, min(layer_name) AS layer_name FROM records "
        f"GROUP BY ALL) LEFT JOIN tolerances USING (dtype)"
    )
    joined = " AND ".join(f"t.{name} = r.{name}" for name in every)
    with database.joins_as_written():
        database.rows(f"""CREATE TABLE sides AS
        SELECT m.pair, m.side, r.training_step, r.evaluation_step, t.tensor, r.invocation, r.batch, 1 AS nth, t.form,
            r.place, r.step, {", ".join(f"r.{name}" for name in SHOWN)}
        FROM (SELECT run, cell, trial, process, {named}, training_step, step, position[6] AS place,
                  CASE WHEN evaluation THEN step ELSE 0 END AS evaluation_step,
                  coalesce(invocation, 0) AS invocation,
                  CASE WHEN direction = 'pipeline' THEN coalesce(batch_id, -1) ELSE 0 END AS batch,
                  {", ".join(f"coalesce({name}, 0) AS {name}" if name in COUNTS else name for name in SHOWN)}
              FROM records) r
        JOIN tensors t ON {joined}
        JOIN members m ON m.run = r.run AND m.cell = r.cell AND m.trial = r.trial AND m.process = r.process""")
    _tell_apart(database)
    database.rows(f"""CREATE TABLE steps AS
        SELECT pair, side, training_step, evaluation_step, max(step) AS step,
            bool_or({" + ".join(COUNTS)} = 0)
            AND NOT (any_value(m.cut_off) AND max(step) = max(max(step)) OVER (PARTITION BY pair, side)) AS is_whole
        FROM sides JOIN members m USING (pair, side) GROUP BY pair, side, training_step, evaluation_step""")
    database.rows("""CREATE TABLE reached AS
        SELECT pair, side, tensor, bool_or(was_seen) AS was_seen, bool_or(was_seen OR is_watched) AS is_watched
        FROM (SELECT DISTINCT pair, side, tensor, true AS was_seen, false AS is_watched FROM sides
              UNION ALL
              SELECT m.pair, m.side, t.tensor, false, true
              FROM members m JOIN summaries s ON m.run = s.run AND m.cell = s.cell AND m.trial = s.trial
                                             AND m.process = s.process
              JOIN tensors t ON list_contains(s.watched_names, t.layer_name) AND list_contains(s.channels, t.role))
        GROUP BY pair, side, tensor""")
    database.rows(f"CREATE TABLE compared AS {judged(exact)}")


def _tell_apart(database: Database) -> None:
    """Number records of the same key, such as the stock logger's of several calls, in their order."""
    key = ", ".join(("side", *(name for name in KEY if name != "nth")))
    several = database.rows(f"SELECT 1 FROM sides GROUP BY {key} HAVING count(*) > 1 LIMIT 1")
    if several:  # rare, and as costly as all else
        database.rows(f"""CREATE OR REPLACE TABLE sides AS SELECT * REPLACE (
            (row_number() OVER (PARTITION BY {key} ORDER BY place))::INTEGER AS nth) FROM sides""")


def _make_members(database: Database, pairing: Pairing) -> None:
    def row(pair: int, side: str, member: Member, other: Member) -> tuple[Any, ...]:
        summary, theirs = member.process.summary, other.process.summary
        cut = bool(summary.get("records_cut") or summary.get("write_error"))
        return (
            pair,
            side,
            *member.trial.key,
            member.process.stem,
            # The last step begun may not be written yet.
            summary["steps_seen"] - (summary.get("status") != "complete"),
            cut or summary.get("status") != "complete",
            cut,
            _scope(summary) == _scope(theirs),
            _limits(summary) == _limits(theirs),
        )

    _fill(
        database,
        "CREATE TABLE members (pair INTEGER, side VARCHAR, run VARCHAR, cell VARCHAR, trial VARCHAR, process VARCHAR, "
        "steps_done BIGINT, cut_off BOOLEAN, cut BOOLEAN, same_scope BOOLEAN, same_limits BOOLEAN)",
        "members",
        (
            row(pair.number, side, member, other)
            for pair in pairing.pairs
            for side, member, other in (("a", pair.a, pair.b), ("b", pair.b, pair.a))
        ),
    )


def _fill(database: Database, create: str, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
    database.rows(create)
    listed = list(rows)
    if listed:
        marks = ", ".join("?" for _ in listed[0])
        database.connection.executemany(f"INSERT INTO {name} VALUES ({marks})", listed)


def _scope(summary: Mapping[str, Any]) -> str:
    """What a process was asked to watch; the stock logger has it beside the other fields."""
    config = summary.get("config") or {}
    asked = [config.get(name) for name in ("groups", "follows")]
    flat = [summary.get(name) for name in ("channels", "watch_types", "watch_names", "watch_stride")]
    return json.dumps([asked, flat], sort_keys=True)


def _limits(summary: Mapping[str, Any]) -> tuple[Any, ...]:
    """What counts as huge, and what as out of range."""
    config = summary.get("config") or {}
    huge = config.get("huge_threshold", summary.get("huge_threshold")), config.get("huge_headroom")
    return (*huge, config.get("bounds"), config.get("follows"))
