"""What each pair of records comes to, in SQL: matched, mismatched, missing, inconclusive, or never written.

Two rules tell what is missing from what was never written:

- A step in which a process wrote a clean record was written whole (it was sampled, or belongs to the run-up), but for
  its last one if the process was cut off. What the other side has there and this one lacks is missing.
- In any other step only bad records are written, and these always are. What is bad on one side, in a step that the
  other went through without a record of it, is a mismatch: it was clean there.
"""

from __future__ import annotations

MATCHED, MISMATCHED, MISSING, INCONCLUSIVE, UNWRITTEN = range(5)
#: The reason of a mismatch that no tolerance explains.
BAD_ALONE = "bad on one side alone"

#: What makes two records the same one on both sides. `batch` is that of a followed tensor; `nth` tells apart records of
#: the stock logger, which does not count calls.
KEY = ("pair", "training_step", "evaluation_step", "tensor", "invocation", "batch", "nth")
COUNTS = ("nan_count", "inf_count", "huge_count", "oob_count")
NUMBERS = ("finite_abs_max", "finite_min", "finite_max")
MOMENTS = ("finite_mean", "finite_rms")
# As recorded: of the root mean square, which the reference of the fields says.
_MOMENTS_RTOL = 2e-6

_SIDE_BY_SIDE = """
    SELECT {keys}, coalesce(a.place, b.place) AS place, coalesce(a.step, b.step) AS step,
        coalesce(ta.direction, tb.direction) AS direction,
        CASE WHEN a.form IS NULL THEN 'a' WHEN b.form IS NULL THEN 'b' ELSE '' END AS lacks,
        ta.shape AS shape_a, tb.shape AS shape_b, ta.dtype AS dtype_a, tb.dtype AS dtype_b,
        (ta.rtol IS NULL) <> (tb.rtol IS NULL) AS one_is_exact, a.numel <> b.numel AS numel_differs,
        a.nan_count + a.inf_count AS nonfinite_a, b.nan_count + b.inf_count AS nonfinite_b,
        coalesce(a.huge_count + a.oob_count, b.huge_count + b.oob_count) AS beyond, {halves} AS halves,
        a.nan_count <> b.nan_count OR a.inf_count <> b.inf_count
            OR (m.same_limits AND (a.huge_count <> b.huge_count OR a.oob_count <> b.oob_count)) AS counts_differ,
        greatest(ta.rtol, tb.rtol, 0) AS the_rtol, greatest(ta.atol, tb.atol, 0) AS the_atol,
        {differ} AS values_differ, greatest({deviations}) AS deviation
    FROM (FROM sides WHERE side = 'a') a
    FULL JOIN (FROM sides WHERE side = 'b') b USING ({using})
    LEFT JOIN tensors ta ON ta.form = a.form
    LEFT JOIN tensors tb ON tb.form = b.form
    LEFT JOIN members m ON m.pair = coalesce(a.pair, b.pair) AND m.side = 'a'"""
_WITH_THE_OTHER = """
    SELECT j.*, coalesce(s.is_whole, false) AS is_whole,
        NOT coalesce(r.was_seen, false) AND NOT o.same_scope AS not_watched,
        coalesce(nonfinite_a, nonfinite_b) > 0 OR (beyond > 0 AND o.same_limits) AS is_bad,
        coalesce(r.is_watched, false) AND NOT o.cut AND j.step <= o.steps_done AND direction <> 'pipeline' AS would_tell
    FROM side_by_side j
    LEFT JOIN members o ON o.pair = j.pair AND o.side = j.lacks
    LEFT JOIN reached r ON r.pair = j.pair AND r.side = j.lacks AND r.tensor = j.tensor
    LEFT JOIN steps s ON s.pair = j.pair AND s.side = j.lacks AND s.training_step = j.training_step
                     AND s.evaluation_step = j.evaluation_step"""


def judged(exact: bool) -> str:
    """A query over the tables of compare_tables: a row for each key, with `status`, `reason`, `lacks` and `deviation`.

    `deviation` is the largest relative difference between two numbers of the records.

    Args:
        exact: Whether recorded numbers must be the same, of the same dtype.
    """
    joined = _SIDE_BY_SIDE.format(
        keys=", ".join(f"coalesce(a.{name}, b.{name}) AS {name}" for name in KEY),
        using=", ".join(KEY),
        halves=" OR ".join(f"(a.{name} IS NULL) <> (b.{name} IS NULL)" for name in NUMBERS),
        differ=" OR ".join(_differ(name, exact) for name in (*NUMBERS, *MOMENTS)),
        deviations=", ".join(_deviation(name) for name in NUMBERS),
    )
    form = (
        ("dtype_a <> dtype_b", "dtypes differ")
        if exact
        else ("lacks = '' AND one_is_exact", "dtypes are of different kinds")
    )
    rules = (
        # A count of NaN is none of magnitude: whether there is any can be compared whatever the shapes.
        ("lacks = '' AND (nonfinite_a > 0) <> (nonfinite_b > 0)", MISMATCHED, BAD_ALONE),
        ("shape_a <> shape_b", INCONCLUSIVE, "shapes differ"),
        ("numel_differs", INCONCLUSIVE, "numbers of elements differ"),
        (form[0], INCONCLUSIVE, form[1]),
        ("counts_differ", MISMATCHED, "counts differ"),
        ("lacks = '' AND halves", INCONCLUSIVE, "a number is recorded on one side alone"),
        ("values_differ", MISMATCHED, "values differ"),
        ("lacks = ''", MATCHED, ""),
        ("not_watched", UNWRITTEN, "not watched"),
        ("is_whole", MISSING, "the step was written, this was not"),
        ("is_bad AND would_tell", MISMATCHED, BAD_ALONE),
    )
    status = " ".join(f"WHEN {condition} THEN {status}" for condition, status, _ in rules)
    reason = " ".join(f"WHEN {condition} THEN '{reason}'" for condition, _, reason in rules)
    matches_form = "shape_a = shape_b AND NOT one_is_exact"
    otherwise = "the step was not written, or only what was bad in it"
    return f"""WITH side_by_side AS ({joined}), with_the_other AS ({_WITH_THE_OTHER})
        SELECT {", ".join(KEY)}, place, step, lacks,
            CASE WHEN {matches_form} THEN deviation END AS deviation,
            (CASE {status} ELSE {UNWRITTEN} END)::TINYINT AS status,
            CASE {reason} ELSE '{otherwise}' END AS reason FROM with_the_other"""


def _larger(name: str) -> str:
    return f"greatest(abs(a.{name}), abs(b.{name}))"


def _deviation(name: str) -> str:
    """Divided first: the difference of two large numbers of float64 may be none."""
    return f"abs(a.{name} / nullif({_larger(name)}, 0) - b.{name} / nullif({_larger(name)}, 0))"


def _differ(name: str, exact: bool) -> str:
    """NULL, which is as good as false, where a side has no such number."""
    if exact:
        return f"a.{name} <> b.{name}"
    if name in MOMENTS:
        # A mean can be next to nothing where its elements are not: its error is a part of their magnitude.
        return f"abs(a.{name} - b.{name}) > the_atol + (the_rtol + {_MOMENTS_RTOL!r}) * {_larger('finite_rms')}"
    return f"abs(a.{name} - b.{name}) > the_atol + the_rtol * {_larger(name)}"
