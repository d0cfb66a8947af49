"""What a report shows of some captures, as plain values: verdicts of all trials, and details of the telling ones."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aorta_collectors.analysis.captures import NONE, Captures
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.first_bad import first_bad
from aorta_collectors.analysis.mitigations import OfCell, Outcome, across_cells
from aorta_collectors.analysis.report.again import sweep_again
from aorta_collectors.analysis.report.charts import (
    COLUMNS,
    ROWS,
    Heat,
    Line,
    Rank,
    focus_of,
    heat_map,
    over_cells,
    over_ranks,
    run_up,
)
from aorta_collectors.analysis.report.facts import Facts, facts_of
from aorta_collectors.analysis.report.points import Points, Series
from aorta_collectors.analysis.report.profiled import OfNumerics, Profiled, of_numerics
from aorta_collectors.analysis.report.verdicts import Row, row_of

#: Trials that are shown in detail.
MOST_DETAILS = 8
# Cells of all heat maps together; each is some ten bytes of the page.
_MOST_HEAT = 200_000
# Ticket, workload and time, as a sweep names its directory.
_NAME_PARTS = 3
_BESIDE = ("matrix.md", "perf.md", "recipe.resolved.yaml", "matrix.json", "evidence.json")
_TELLING = (
    Outcome.BASELINE,
    Outcome.APPEARS,
    Outcome.REMOVED,
    Outcome.LATER,
    Outcome.ELSEWHERE,
    Outcome.EARLIER,
    Outcome.SAME,
)


@dataclass(frozen=True)
class Detail:
    """A trial with its charts' values.

    Attributes:
        focus: The tensor that the charts are about; None where there is no record.
        at_fault: Whether its layer is the one that first goes bad: it is not where no record of that is left.
        huge: The threshold beyond which magnitudes are huge; None where none is known.
    """

    row: Row
    facts: Facts
    focus: Series | None
    at_fault: bool
    huge: float | None
    run_up: tuple[Line, ...]
    heat: Heat | None
    ranks: tuple[Rank, ...]
    by_rank: tuple[Line, ...]


@dataclass(frozen=True)
class Report:
    """All of it.

    Attributes:
        name: The end of the path, in which a sweep has its ticket.
        workload: The host's name for what ran; "-" without a sweep.
        rows: Of all trials.
        details: Of some, the most telling first.
        cells_line: The tensor of the first detail in the course of each detailed cell.
        beside: Files of the run directory that a reader may want.
        sweep_again: A command that runs the whole sweep again; None where none is known.
        profiled: Trials in which numerics left something, what is bad first; one of each of some cells.
        numerics: What it says of every such trial, by the trial's key.
    """

    captures: Captures
    name: str
    workload: str
    cells: tuple[OfCell, ...]
    rows: tuple[Row, ...]
    details: tuple[Detail, ...]
    cells_line: tuple[Line, ...]
    beside: tuple[Path, ...]
    sweep_again: str | None
    profiled: tuple[Profiled, ...] = ()
    numerics: Mapping[tuple[str, str, str], OfNumerics] = field(default_factory=dict)

    @property
    def is_watched(self) -> bool:
        """Whether layer_numerics left something."""
        return any(row.of.trial.processes for row in self.rows)


def report_of(
    captures: Captures, database: Database, numerics: Captures | None = None, profiled: Sequence[Profiled] = ()
) -> Report:
    """Read everything that a report shows of layer_numerics, beside what numerics says.

    Raises:
        CollectorsError: It cannot be read.
    """
    cells = across_cells(captures.path, first_bad(captures, database))
    rows = [row_of(of, cell) for cell in cells for of in cell.trials]
    chosen = _telling(cells, rows)
    points = Points(database, [row.of.trial for row in chosen])
    details: list[Detail] = []
    most_columns = max(20, min(COLUMNS, _MOST_HEAT // (ROWS * max(1, len(chosen)))))
    for tid, row in enumerate(chosen):
        reference = details[0].focus if details else None
        details.append(_detail(points, tid, row, reference, most_columns))
    beside = tuple(captures.path / name for name in _BESIDE if _is_file(captures.path / name))
    return Report(
        captures,
        "/".join(captures.path.resolve().parts[-_NAME_PARTS:]),
        next((str(row.of.trial.record["workload"]) for row in rows if row.of.trial.record.get("workload")), NONE),
        tuple(cells),
        tuple(rows),
        tuple(details),
        _cells_line(points, details),
        beside,
        sweep_again(captures),
        tuple(profiled),
        {trial.key: of_numerics(trial) for trial in numerics.captured} if numerics is not None else {},
    )


def _telling(cells: Sequence[OfCell], rows: Sequence[Row]) -> list[Row]:
    """One trial of each cell that says most: the baseline's, then of cells in which the bad value is gone or moved."""
    by_cell: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.of.trial.processes:
            by_cell.setdefault(row.of.trial.key[:2], []).append(row)

    def place(cell: OfCell) -> tuple[int, float]:
        outcome = _TELLING.index(cell.outcome) if cell.outcome in _TELLING else len(_TELLING)
        return outcome, cell.steps[0] if cell.steps is not None else float("inf")

    def first(row: Row) -> float:
        return row.fault["training_step"] if row.fault is not None else float("inf")

    keys = [(cell.run, cell.cell) for cell in sorted(cells, key=place)]
    chosen = [min(by_cell[key], key=first) for key in keys if key in by_cell]
    # Where something starts comes first, also where the baseline is clean and what is bad cannot be compared with it.
    lead = next((row for row in chosen if row.fault is not None), None)
    if lead is not None and chosen[0].fault is None:
        chosen.remove(lead)
        chosen.insert(0, lead)
    return chosen[:MOST_DETAILS]


def _detail(points: Points, tid: int, row: Row, reference: Series | None, most_columns: int) -> Detail:
    fault = row.fault
    focus = focus_of(points, tid, fault, reference)
    step = fault["step"] if fault is not None else None
    stems = [process.stem for process in row.of.trial.processes]
    process = stems.index(row.of.earliest.process) if row.of.earliest is not None else None
    lines: list[Line] = []
    ranks: list[Rank] = []
    by_rank: list[Line] = []
    if focus is not None:
        lines = run_up(points, tid, focus, step, process)
        ranks, by_rank = over_ranks(points, tid, focus, step)
    config = row.of.trial.processes[0].summary.get("config") or {}
    huge = config.get("huge_threshold") if config.get("huge_headroom") is None else None
    return Detail(
        row,
        facts_of(row.of.trial),
        focus,
        fault is not None and focus is not None and focus.layer == fault.get("layer"),
        float(huge) if isinstance(huge, int | float) and huge > 0 else None,
        tuple(lines),
        heat_map(points, tid, columns=most_columns),
        tuple(ranks),
        tuple(by_rank),
    )


def _cells_line(points: Points, details: Sequence[Detail]) -> tuple[Line, ...]:
    if len(details) < 2 or details[0].focus is None:
        return ()
    several = len({detail.row.of.trial.run for detail in details}) > 1
    labels = [
        f"{trial.run}: {trial.cell}" if several else trial.cell for trial in (detail.row.of.trial for detail in details)
    ]
    lines = over_cells(points, range(len(details)), details[0].focus.key, labels)
    return tuple(lines) if len(lines) > 1 else ()


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
