"""What is known of a run at one moment: the answer of `watch`, of which --json prints the fields as they are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Largest:
    """How large the finite values of a tensor have been.

    Attributes:
        tensor: Which tensor of which layer, by the fields that records have for it.
        step, rank: Where it was largest; the earliest of equals.
        abs_max: Largest finite magnitude in it.
        headroom: How far below the largest number of `dtype` that is, in bits.
    """

    tensor: Mapping[str, str]
    step: int
    rank: int
    abs_max: float | None
    headroom: float | None
    dtype: str | None


@dataclass(frozen=True)
class Point:
    """One step, with all tensors of which there are records.

    Attributes:
        kind: The worst that the step holds: nan, inf, huge or oob; None where all is clean.
        abs_max: The finite magnitude that is nearest to its dtype's limit; None where nothing finite is above 0.
        headroom: How far below the largest number of `dtype` that is, in bits.
    """

    step: int
    kind: str | None
    abs_max: float | None
    headroom: float | None
    dtype: str | None


@dataclass(frozen=True)
class BadTensor:
    """A tensor that was seen bad.

    Attributes:
        step, rank, kind: Of its first bad record.
        last_step: The last step with a bad record.
        records: Bad records.
    """

    tensor: Mapping[str, str]
    step: int
    rank: int
    kind: str
    last_step: int
    records: int


@dataclass(frozen=True)
class Magnitudes:
    """What the records say.

    Attributes:
        worst: The tensors that came nearest to their dtype's limit, nearest first.
        trend: The last steps, in their order.
        bad: In the order in which they became bad; the first of `num_bad`.
        newest_step: The last step with a record; None without records.
        passed_over_bytes: Of the records' files, what was not read.
        unreadable_lines: Lines that are no records.
    """

    worst: tuple[Largest, ...] = ()
    trend: tuple[Point, ...] = ()
    bad: tuple[BadTensor, ...] = ()
    num_bad: int = 0
    newest_step: int | None = None
    passed_over_bytes: int = 0
    unreadable_lines: int = 0


@dataclass(frozen=True)
class Rank:
    """One process.

    Attributes:
        files: The stem of its files' names.
        state: running, ended, killed (a signal's note says so) or gone (no such process on its host, which is ours).
        ended_by: As its summary says, or what the signal's note does.
        steps: Begun.
        behind: Steps that the foremost rank is ahead.
        silent_s: Seconds since it was last heard of.
        is_slow: Whether that is far longer than its steps take.
    """

    rank: int
    files: str
    host: str
    pid: int
    state: str
    ended_by: str | None
    steps: int
    behind: int
    silent_s: float
    is_slow: bool
    first_bad_step: int | None
    write_error: str | None


@dataclass(frozen=True)
class Progress:
    """A trial's processes, and what their summaries say.

    Attributes:
        world_size: Ranks that the job has.
        missing: How many of them have not been heard of.
        restart: Attempt of torchrun, from 0.
        steps: Of the foremost rank.
        steps_per_s: Of the foremost rank lately; None where that isn't known.
        since_step_s: Seconds since a rank began a step.
        overhead: Share of a step that observing takes, the largest of all ranks, as the summaries have it.
        sample_every: The records of clean tensors are written in one step of so many.
        first_bad, first_nonfinite: The earliest of all ranks, as summaries name them, with `rank`.
        origin: Likewise.
    """

    ranks: tuple[Rank, ...]
    world_size: int
    missing: int
    restart: int
    steps: int
    steps_per_s: float | None
    since_step_s: float
    overhead: float | None
    sample_every: int | None
    first_bad: Mapping[str, Any] | None
    first_nonfinite: Mapping[str, Any] | None
    origin: Mapping[str, Any] | None

    @property
    def has_ended(self) -> bool:
        return not self.missing and all(rank.state != "running" for rank in self.ranks)


@dataclass(frozen=True)
class Cell:
    """A trial of the sweep, or a cell of which no trial has begun.

    Attributes:
        trial: Its index; None where there is none yet.
        state: to come, running or ended.
        verdict: Of the evidence, by its receipt.
        passed: Whether the trial passed, by the host's record.
        first_bad: Of its receipt: step, layer and kind, as far as it names them.
    """

    cell: str
    trial: str | None
    state: str
    verdict: str | None = None
    passed: bool | None = None
    first_bad: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Moment:
    """What any live view is of.

    Attributes:
        at: Local time, ISO 8601 with the offset.
        path: What is looked at.
        state: waiting (nothing runs that can be seen), running or ended.
        awaited: What a waiting one waits for, a sentence.
        cell, trial: Of the trial that is shown; "-" without a sweep.
        cells: Of the sweep, in the recipe's order; empty without one.
    """

    at: str
    path: str
    state: str
    awaited: str | None = None
    cell: str = "-"
    trial: str = "-"
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Snapshot(Moment):
    """All of it.

    Attributes:
        problems: What could not be read, a sentence each.
    """

    progress: Progress | None = None
    magnitudes: Magnitudes = Magnitudes()
    problems: tuple[str, ...] = ()

    @property
    def is_bad(self) -> bool:
        """Whether anything bad was seen, in the trial shown or in one that has ended."""
        in_trial = self.progress is not None and self.progress.first_bad is not None
        return in_trial or self.magnitudes.num_bad > 0 or any(cell.first_bad for cell in self.cells)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
