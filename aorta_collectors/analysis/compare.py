"""Where two captures differ: how many records match, where they part first, and how the difference spreads.

Compared are statistics of tensors. That they are equal is no proof that the tensors are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aorta_collectors.analysis.compare_judgement import (
    BAD_ALONE,
    INCONCLUSIVE,
    KEY,
    MATCHED,
    MISMATCHED,
    MISSING,
    UNWRITTEN,
)
from aorta_collectors.analysis.compare_pairs import Pair, Pairing
from aorta_collectors.analysis.compare_result import Compared, Comparison, Counts, Divergence, Fields, Steps
from aorta_collectors.analysis.compare_tables import SHOWN, compare_records
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.tolerance import Tolerance

_BEFORE = 3
_STATUS = {MISMATCHED: "mismatched", MISSING: "missing", INCONCLUSIVE: "inconclusive", UNWRITTEN: "not recorded"}
_IDENTITY = ("layer", "role", "direction", "tensor_path", "param_name", "phase", "checkpoint")


def compare(
    database: Database, pairing: Pairing, tolerances: Mapping[str, Tolerance], exact: bool = False, most: int = 20
) -> Comparison:
    """Compare the records of paired processes.

    Args:
        database: Of `pairing.captures`.
        exact: Whether recorded numbers must be the same.
        most: Steps and tensors that are listed of a pair.
    """
    compare_records(database, pairing, tolerances, exact)
    counts = _counts(database)
    steps = {
        pair: (in_a, in_b, in_both)
        for pair, in_a, in_b, in_both in database.rows("""
        SELECT pair, count(*) FILTER (in_a), count(*) FILTER (in_b), count(*) FILTER (in_a AND in_b)
        FROM (SELECT pair, bool_or(side = 'a') AS in_a, bool_or(side = 'b') AS in_b FROM steps
              GROUP BY pair, training_step, evaluation_step) GROUP BY pair""")
    }
    first = _first(database)
    reasons = _grouped(
        database.dicts(f"""
        SELECT pair, status, reason, lacks, count(*) AS count FROM compared WHERE status <> {MATCHED}
        GROUP BY ALL ORDER BY status, count DESC, reason, lacks""")
    )
    by_step = _by_step(database, most)
    by_tensor = _by_tensor(database, most)

    def compared(pair: Pair) -> Compared:
        begun = min(member.process.summary["steps_seen"] for member in (pair.a, pair.b))
        listed_steps, listed_tensors = by_step.get(pair.number, ()), by_tensor.get(pair.number, ())
        return Compared(
            pair,
            counts.get(pair.number, Counts()),
            Steps(*steps.get(pair.number, (0, 0, 0)), begun),
            first.get((pair.number, "any")),
            first.get((pair.number, "bad")),
            tuple({**_without(row, "pair"), "status": _STATUS[row["status"]]} for row in reasons.get(pair.number, ())),
            tuple(_without(row, "pair", "total") for row in listed_steps),
            tuple(_without(row, "pair", "total") for row in listed_tensors),
            listed_steps[0]["total"] if listed_steps else 0,
            listed_tensors[0]["total"] if listed_tensors else 0,
        )

    return Comparison(tuple(map(compared, pairing.pairs)), pairing.only_a, pairing.only_b)


def _counts(database: Database) -> dict[int, Counts]:
    names = {
        (MATCHED, ""): "matched",
        (MISMATCHED, ""): "mismatched",
        (MISMATCHED, "a"): "mismatched",
        (MISMATCHED, "b"): "mismatched",
        (INCONCLUSIVE, ""): "inconclusive",
        (MISSING, "a"): "missing_in_a",
        (MISSING, "b"): "missing_in_b",
        (UNWRITTEN, "a"): "not_recorded_in_a",
        (UNWRITTEN, "b"): "not_recorded_in_b",
    }
    found: dict[int, dict[str, int]] = {}
    for pair, status, lacks, count in database.rows(
        "SELECT pair, status, lacks, count(*) FROM compared GROUP BY pair, status, lacks"
    ):
        of_pair = found.setdefault(pair, {})
        name = names[status, lacks]
        of_pair[name] = of_pair.get(name, 0) + count
    return {pair: Counts(**of_pair) for pair, of_pair in found.items()}


def _first(database: Database) -> dict[tuple[int, str], Divergence]:
    """By pair and by what: "any" mismatch, or a "bad" tensor that is bad on one side alone."""
    key, identity = ", ".join(KEY), ", ".join(f"t.{name}" for name in _IDENTITY)
    records = ", ".join(
        f"CASE WHEN {side}.form IS NOT NULL THEN {{step: {side}.step, dtype: t{side}.dtype, shape: t{side}.shape, "
        f"{', '.join(f'{name}: {side}.{name}' for name in SHOWN)}}} END AS {side}"
        for side in "ab"
    )
    joined = f"""LEFT JOIN (FROM sides WHERE side = 'a') a USING ({key})
        LEFT JOIN (FROM sides WHERE side = 'b') b USING ({key})
        LEFT JOIN tensors ta ON ta.form = a.form LEFT JOIN tensors tb ON tb.form = b.form"""
    database.rows(
        "CREATE TABLE firsts AS "
        + " UNION ALL ".join(
            f"""
        (SELECT '{what}' AS what, {key}, place, step, reason, deviation FROM compared WHERE {condition}
         QUALIFY row_number() OVER (PARTITION BY pair ORDER BY training_step, evaluation_step, place, tensor) = 1)"""
            for what, condition in (("any", f"status = {MISMATCHED}"), ("bad", f"reason = '{BAD_ALONE}'"))
        )
    )
    found = database.dicts(f"""SELECT f.pair, f.what, {identity}, f.training_step, f.step, f.invocation, f.reason,
        f.deviation, {records} FROM firsts f {joined}
        JOIN (SELECT DISTINCT ON (tensor) * FROM tensors) t ON t.tensor = f.tensor""")
    earlier: dict[tuple[int, str], list[Fields]] = {}
    for row in database.dicts(f"""SELECT pair, what, training_step, {records}
        FROM (SELECT c.*, f.what FROM compared c JOIN firsts f
              ON c.pair = f.pair AND c.tensor = f.tensor AND c.invocation = f.invocation AND c.nth = f.nth
              AND (c.training_step, c.evaluation_step) < (f.training_step, f.evaluation_step)
              QUALIFY row_number() OVER (PARTITION BY c.pair, f.what
                  ORDER BY c.training_step DESC, c.evaluation_step DESC, c.batch DESC) <= {_BEFORE}) c
        {joined} ORDER BY pair, training_step, evaluation_step, batch"""):
        earlier.setdefault((row["pair"], row["what"]), []).append(_without(row, "pair", "what"))
    return {
        (row["pair"], row["what"]): Divergence(
            _without(row, "pair", "what", "a", "b"),
            row["a"],
            row["b"],
            tuple(earlier.get((row["pair"], row["what"]), ())),
        )
        for row in found
    }


_TALLY = f"""count(*) FILTER (status IN ({MATCHED}, {MISMATCHED}, {INCONCLUSIVE})) AS compared,
    count(*) FILTER (status = {MISMATCHED}) AS mismatched,
    count(*) FILTER (status = {MISSING} AND lacks = 'a') AS missing_in_a,
    count(*) FILTER (status = {MISSING} AND lacks = 'b') AS missing_in_b,
    count(*) FILTER (status = {INCONCLUSIVE}) AS inconclusive,
    max(deviation) AS deviation"""


def _by_step(database: Database, most: int) -> dict[int, list[dict[str, Any]]]:
    return _grouped(
        database.dicts(f"""
        SELECT *, count(*) OVER (PARTITION BY pair) AS total FROM (
            SELECT c.pair, training_step, max(evaluation_step) > 0 AS evaluation, {_TALLY}
            FROM compared c
            LEFT JOIN (SELECT pair, training_step AS first FROM firsts WHERE what = 'any') f USING (pair)
            WHERE status <> {UNWRITTEN} AND training_step >= coalesce(first, 0) - 2
            GROUP BY pair, training_step, evaluation_step > 0)
        QUALIFY row_number() OVER (PARTITION BY pair ORDER BY training_step, evaluation) <= {most}
        ORDER BY pair, training_step, evaluation""")
    )


def _by_tensor(database: Database, most: int) -> dict[int, list[dict[str, Any]]]:
    return _grouped(
        database.dicts(f"""
        SELECT w.* EXCLUDE (tensor, began), {", ".join(_IDENTITY)}, began[1]::BIGINT AS training_step FROM (
            SELECT *, count(*) OVER (PARTITION BY pair) AS total FROM (
                SELECT pair, tensor, {_TALLY}, min([training_step, evaluation_step, place]::DOUBLE[])
                    FILTER (status NOT IN ({MATCHED}, {UNWRITTEN})) AS began
                FROM compared GROUP BY pair, tensor HAVING began IS NOT NULL)
            QUALIFY row_number() OVER (PARTITION BY pair ORDER BY began, tensor) <= {most}) w
        JOIN (SELECT DISTINCT ON (tensor) * FROM tensors) t USING (tensor) ORDER BY pair, began, tensor""")
    )


def _grouped(rows: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["pair"], []).append(row)
    return found


def _without(row: Fields, *names: str) -> Fields:
    return {name: value for name, value in row.items() if name not in names}
