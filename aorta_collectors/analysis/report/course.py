"""Loss, time, throughput and memory in the course of a trial's steps, few enough values for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aorta_collectors.analysis.captures import Process
from aorta_collectors.analysis.numerics.processes import Processes
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.top_losses import SMOOTHING, Losses

#: Points of a line; ranks that have lines.
MOST_POINTS, MOST_RANKS = 400, 8
_BAD_STEPS = 20

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class OfProcess:
    """One rank. Of several steps that share a point: the median step, and of all else the largest.

    Attributes:
        label: Such as "rank 3".
        step_ms, slowest_ms: Without steps in which operations were counted.
        tokens_per_s, samples_per_s: Medians.
        grad_norm: Where it is finite.
    """

    label: str
    step_ms: Points
    slowest_ms: Points
    tokens_per_s: Points
    samples_per_s: Points
    memory_mb: Points
    grad_norm: Points


@dataclass(frozen=True)
class Course:
    """All ranks, and the loss of the first one that has one.

    Attributes:
        loss, ema: Of finite losses, thinned out; `smoothing` is the weight of what was before.
        bad_steps: The first steps whose loss is NaN or infinite.
        ranks_left_out: Beyond MOST_RANKS.
    """

    loss: Points
    ema: Points
    smoothing: float
    best_loss: float | None
    best_loss_step: int | None
    last_loss: float | str | None
    bad_steps: tuple[int, ...]
    processes: tuple[OfProcess, ...]
    ranks_left_out: int


def course_of(lines: Lines, processes: Processes) -> Course | None:
    """None where no step has a line."""
    losses = Losses()
    bad: list[int] = []
    found: list[OfProcess] = []
    for label, process in zip(processes.labels[:MOST_RANKS], processes.counted, strict=False):
        if not process.sizes.get("steps"):
            continue
        if losses.last is None:
            losses, bad = _losses(lines, process)
        of_process = _of_process(lines, process, label)
        found += [of_process] if of_process is not None else []
    if not found:
        return None
    return Course(
        losses.curve.points,
        losses.ema_curve.points,
        SMOOTHING,
        losses.best,
        losses.best_step,
        losses.last,
        tuple(bad),
        tuple(found),
        max(0, len(processes.counted) - MOST_RANKS),
    )


def _losses(lines: Lines, process: Process) -> tuple[Losses, list[int]]:
    """Step by step, since each average is made of the one before."""
    losses = Losses()
    bad: list[int] = []
    lines.look_at(process)
    of_training = "kind = 'training' AND loss IS NOT NULL"
    for batch in lines.batches(
        f"SELECT step, try_cast(loss AS DOUBLE), loss FROM steps WHERE {of_training} ORDER BY step"
    ):
        for step, value, written in batch:
            is_finite = value is not None and abs(value) < float("inf")
            losses.take({"step": step, "kind": "training", "loss": value if is_finite else str(written).strip('"')})
            if not is_finite and len(bad) < _BAD_STEPS:
                bad.append(step)
    return losses, bad


def _of_process(lines: Lines, process: Process, label: str) -> OfProcess | None:
    lines.look_at(process)
    ((first, last),) = lines.rows("SELECT min(step), max(step) FROM steps")
    if first is None:
        return None
    rows = lines.rows(
        f"""SELECT max(step), median(step_ms) FILTER (NOT is_counted), max(step_ms) FILTER (NOT is_counted),
            median(tokens_per_s) FILTER (NOT is_counted), median(samples_per_s) FILTER (NOT is_counted),
            max(memory_used_mb), max(norm) FILTER (isfinite(norm))
        FROM (SELECT *, try_cast(grad_norm AS DOUBLE) AS norm FROM steps)
        GROUP BY ((step - {first})::BIGINT * {MOST_POINTS}) // {max(MOST_POINTS, last - first + 1)} ORDER BY 1"""
    )
    return OfProcess(label, *(_column(rows, index) for index in range(1, 7)))


def _column(rows: Sequence[tuple[int, ...]], index: int) -> Points:
    return tuple((row[0], float(row[index])) for row in rows if row[index] is not None)
