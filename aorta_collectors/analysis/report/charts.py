"""What the charts of a report show, few enough values for a page: steps are binned, and of a bin the worst is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.magnitude import KINDS
from aorta_collectors.analysis.report.points import Points, Series

#: Of a heat map.
COLUMNS, ROWS = 400, 300
# Recorded steps on either side of the first bad one that are shown one by one, and bins for all others.
_NEAR, _BINS = 120, 150
_BEFORE, _AFTER, _LARGEST = 3, 3, 1
_LINES = 8


@dataclass(frozen=True)
class Point:
    """A tensor in one step.

    Attributes:
        magnitude: Largest finite magnitude; None where nothing was finite.
        kind: The worst that is in it: nan, inf, huge or oob; None where it is clean.
        bad: How many elements are NaN, Inf and huge.
        numel: Elements read.
    """

    step: int
    magnitude: float | None
    kind: str | None
    bad: tuple[int, int, int]
    numel: int


@dataclass(frozen=True)
class Line:
    """One line of a chart: a series in the course of steps.

    Attributes:
        label: The cell or the rank that it stands for; None where the series itself tells lines apart.
    """

    series: Series
    points: tuple[Point, ...]
    label: str | None = None


@dataclass(frozen=True)
class Heat:
    """Layers x steps.

    Attributes:
        rows: Series of each row, in execution order: the first, the last, and how many.
        columns: Steps of each column, the first and the last.
        magnitudes: Largest finite magnitude by row and column; None where there is no record, or nothing finite.
        bad: Row, column, severity, NaN, Inf and huge elements, elements read, and rank, of each bad cell.
        ranks: How many ranks are in it; of them the worst is shown.
    """

    rows: tuple[tuple[Series, Series, int], ...]
    columns: tuple[tuple[int, int], ...]
    magnitudes: tuple[tuple[float | None, ...], ...]
    bad: tuple[tuple[int, ...], ...]
    ranks: int


@dataclass(frozen=True)
class Rank:
    """What one rank has of the compared tensor."""

    rank: int
    first_bad: int | None
    bad_records: int
    largest: float | None


def focus_of(points: Points, tid: int, found: Any, reference: Series | None) -> Series | None:
    """The tensor to look at: where it begins; else the same as in the baseline; else the largest."""
    if found is not None:
        where = points.of(tid, found)
        if where is not None:
            return where
    same = points.same(tid, reference.key) if reference is not None else None
    if same is not None:
        return same
    largest = points.series("tid = ?", [tid], "(first_bad IS NULL), first_bad, largest DESC NULLS LAST, id")
    return largest[0] if largest else None


def run_up(points: Points, tid: int, focus: Series, step: int | None, process: int | None) -> list[Line]:
    """The tensor to look at, then what runs just before and after it, and the largest magnitudes of the trial.

    Args:
        process: Which one of the trial; None for the worst of all.
    """
    of_process = "" if process is None else f"AND process = {process}"
    before = points.series("tid = ? AND id < ?", [tid, focus.number], "id DESC", _BEFORE)
    after = points.series("tid = ? AND id > ?", [tid, focus.number], "id", _AFTER)
    chosen = {series.number: series for series in [*reversed(before), *after]}
    largest = points.series("tid = ? AND id <> ?", [tid, focus.number], "largest DESC NULLS LAST, id", _LARGEST)
    chosen.update({series.number: series for series in largest})
    return [
        line
        for series in [focus, *(chosen[number] for number in sorted(chosen))]
        if (line := _line(points, tid, series, step, of_process)).points
    ]


def over_cells(points: Points, tids: Sequence[int], key: tuple[str, ...], labels: Sequence[str]) -> list[Line]:
    """The same tensor in several cells."""
    lines = []
    for tid, label in zip(tids, labels, strict=True):
        series = points.same(tid, key)
        if series is not None:
            lines.append(_line(points, tid, series, series.first_bad, label=label))
    return lines


def over_ranks(points: Points, tid: int, focus: Series, step: int | None) -> tuple[list[Rank], list[Line]]:
    """The tensor on each rank that has it, the bad ranks first; lines for some of them."""
    rows = points.rows(
        """SELECT rank, min(step) FILTER (severity > 0) AS bad, count(*) FILTER (severity > 0), max(magnitude)
        FROM points WHERE series = ? GROUP BY rank ORDER BY bad NULLS LAST, max(magnitude) DESC NULLS LAST, rank""",
        [focus.number],
    )
    ranks = [Rank(*row) for row in rows]
    if len(ranks) < 2:
        return ranks, []
    # The worst, and for comparison the most ordinary.
    shown = ranks if len(ranks) <= _LINES else [*ranks[: _LINES - 2], *ranks[-2:]]
    return ranks, [_line(points, tid, focus, step, f"AND rank = {found.rank}", f"rank {found.rank}") for found in shown]


def heat_map(points: Points, tid: int, columns: int = COLUMNS, rows: int = ROWS) -> Heat | None:
    """Layers x steps of a trial; None where there is no record.

    Args:
        columns: At most; more steps are binned. The same for rows.
    """
    num_series, num_steps = points.count(tid)
    if not num_series or not num_steps:
        return None
    columns, rows = min(columns, num_steps), min(rows, num_series)
    # (i * bins) // n puts each i of n into one of `bins` bins that differ by at most one in size.
    of_series = f"(((id - (SELECT min(id) FROM series WHERE tid = {tid})) * {rows}) // {num_series})"
    of_step = f"((place::BIGINT * {columns}) // {num_steps})"
    ends = points.rows(
        f"SELECT min(id), max(id), count(*) FROM series WHERE tid = {tid} GROUP BY {of_series} ORDER BY 1"
    )
    wanted = sorted({number for first, last, _ in ends for number in (first, last)})
    named = {
        series.number: series
        for series in points.series("id IN (SELECT unnest(?))", [wanted], most=max(1, len(wanted)))
    }
    spans = points.rows(f"SELECT min(step), max(step) FROM steps WHERE tid = {tid} GROUP BY {of_step} ORDER BY 1")
    cells = points.rows(
        f"""SELECT s.number, c.number, max(p.magnitude), max(p.severity),
            sum(p.nan_count), sum(p.inf_count), sum(p.huge_count), sum(p.numel), arg_max(p.rank, p.severity)
        FROM points p
        JOIN (SELECT id, {of_series} AS number FROM series WHERE tid = {tid}) s ON p.series = s.id
        JOIN (SELECT step, {of_step} AS number FROM steps WHERE tid = {tid}) c ON p.step = c.step
        WHERE p.tid = {tid} GROUP BY ALL ORDER BY 1, 2"""
    )
    grid: list[list[float | None]] = [[None] * len(spans) for _ in ends]
    bad = []
    for row, column, magnitude, severity, *counts, rank in cells:
        grid[row][column] = magnitude
        if severity:
            bad.append((row, column, int(severity), *(int(count or 0) for count in counts), int(rank)))
    ((ranks,),) = points.rows(f"SELECT count(DISTINCT rank) FROM points WHERE tid = {tid}")
    return Heat(
        tuple((named[first], named[last], int(count)) for first, last, count in ends),
        tuple((int(first), int(last)) for first, last in spans),
        tuple(map(tuple, grid)),
        tuple(bad),
        int(ranks),
    )


def _line(
    points: Points, tid: int, series: Series, step: int | None, condition: str = "", label: str | None = None
) -> Line:
    """A series over steps: near `step` each, further away of each bin the extremes and the first one of each kind."""
    rows = points.rows(
        f"""WITH by_step AS (
            SELECT p.step, any_value(c.place) AS place, max(p.magnitude) AS magnitude,
                max(p.severity) AS severity, sum(p.nan_count) AS nans, sum(p.inf_count) AS infs,
                sum(p.huge_count) AS huge, sum(p.numel) AS numel
            FROM points p JOIN steps c ON c.tid = p.tid AND c.step = p.step
            WHERE p.tid = {tid} AND p.series = {series.number} {condition} GROUP BY p.step),
        middle AS (SELECT coalesce((SELECT min(place) FROM by_step WHERE step >= ?), max(place)) AS place,
            max(place) + 1 AS num_places FROM by_step),
        binned AS (SELECT b.*, CASE WHEN abs(b.place - m.place) <= {_NEAR} THEN b.place + {_BINS}
            ELSE b.place * {_BINS} // m.num_places END AS bin FROM by_step b, middle m)
        SELECT step, magnitude, severity, nans, infs, huge, numel FROM binned
        QUALIFY row_number() OVER (PARTITION BY bin ORDER BY magnitude DESC NULLS LAST, step) = 1
            OR row_number() OVER (PARTITION BY bin ORDER BY magnitude NULLS LAST, step) = 1
            OR (severity > 0 AND row_number() OVER (PARTITION BY bin, severity ORDER BY step) = 1)
        ORDER BY step""",
        [step],
    )
    return Line(
        series,
        tuple(
            Point(int(at), magnitude, KINDS[severity], (nans or 0, infs or 0, huge or 0), numel or 0)
            for at, magnitude, severity, nans, infs, huge, numel in rows
        ),
        label,
    )
