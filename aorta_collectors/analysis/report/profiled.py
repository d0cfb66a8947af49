"""What a report shows of trials in which numerics left something: their profile, and the course of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.captures import Captures, Trial
from aorta_collectors.analysis.connection import Progress
from aorta_collectors.analysis.numerics.phases import STEP, phases_of
from aorta_collectors.analysis.numerics.processes import Processes, processes_of
from aorta_collectors.analysis.numerics.roofline import Point, points_of
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.numerics.throughput import Throughput, throughput_of
from aorta_collectors.analysis.profile import Profile, profile_of
from aorta_collectors.analysis.report.course import Course, course_of
from aorta_collectors.analysis.report.statistics import Fractions, Statistics, statistics_of
from aorta_collectors.numerics.verify.metrics import came_to_nothing

#: Trials that are shown: one of each cell.
MOST = 6


@dataclass(frozen=True)
class Profiled:
    """One trial.

    Attributes:
        points: Its bricks under the roofline, those that can be placed there.
        first_bad: The earliest line of statistics with a NaN or Inf, with `rank`, and with `came_to_nothing`: whether
            training went on as if nothing had been; None without one.
        stopped: What `on_bad: stop` ended the run with, with `rank`; None where it did not.
    """

    trial: Trial
    profile: Profile
    points: tuple[Point, ...]
    course: Course | None
    statistics: tuple[Statistics, ...]
    fractions: tuple[Fractions, ...]
    first_bad: Mapping[str, Any] | None
    stopped: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON: the profile as `profile --json` has it, and what else is shown beside it."""
        return {
            "profile": self.profile.as_json(),
            "course": asdict(self.course) if self.course is not None else None,
            "statistics": [asdict(found) for found in self.statistics],
            "fractions": [asdict(found) for found in self.fractions],
            "first_bad": self.first_bad,
            "stopped": self.stopped,
        }


@dataclass(frozen=True)
class OfNumerics:
    """A trial in a few values.

    Attributes:
        step_p50_ms: Of the slowest rank.
        bad: As `first_bad` of Profiled, or what the run was stopped with.
    """

    steps: int
    step_p50_ms: float | None
    throughput: Throughput
    bad: Mapping[str, Any] | None


def of_numerics(trial: Trial) -> OfNumerics:
    """Of one in which it left something."""
    processes = processes_of(trial)
    step = next((phase for phase in phases_of(processes.summaries) if phase.name == STEP), None)
    return OfNumerics(
        max(process.summary["steps_seen"] for process in processes.counted),
        step.p50_ms if step is not None else None,
        throughput_of(processes.summaries),
        _earliest(processes, "stopped") or _first_bad(processes),
    )


def profiled_of(captures: Captures, progress: Progress | None = None) -> tuple[Profiled, ...]:
    """Read everything that a report shows of them. Raises CollectorsError."""
    chosen = _telling(captures.captured)
    if not chosen:
        return ()
    with Lines(progress) as lines:
        return tuple(_profiled(lines, trial) for trial in chosen)


def _telling(trials: Sequence[Trial]) -> list[Trial]:
    """One trial of each cell: one in which something is bad, if there is one, and such cells first."""
    by_cell: dict[tuple[str, str], Trial] = {}
    for trial in trials:
        before = by_cell.get(trial.key[:2])
        if before is None or (_is_bad(trial) and not _is_bad(before)):
            by_cell[trial.key[:2]] = trial
    return sorted(by_cell.values(), key=lambda trial: not _is_bad(trial))[:MOST]


def _is_bad(trial: Trial) -> bool:
    return any(process.summary.get(key) for process in trial.processes for key in ("stopped", "first_bad"))


def _profiled(lines: Lines, trial: Trial) -> Profiled:
    profile, processes = profile_of(lines, trial), processes_of(trial)
    statistics, fractions = statistics_of(lines, processes)
    points = points_of(profile.bricks, profile.roofline)
    return Profiled(
        trial,
        profile,
        tuple(point for point in points if point.intensity and point.flops_per_s and point.roof_flops_per_s),
        course_of(lines, processes),
        statistics,
        fractions,
        _first_bad(processes),
        _earliest(processes, "stopped"),
    )


def _first_bad(processes: Processes) -> Mapping[str, Any] | None:
    found = _earliest(processes, "first_bad")
    if found is None:
        return None
    summary = next(process.summary for process in processes.counted if process.rank == found["rank"])
    return {**found, "came_to_nothing": came_to_nothing(summary, processes.summaries)}


def _earliest(processes: Processes, key: str) -> Mapping[str, Any] | None:
    found = [
        {**process.summary[key], "rank": process.rank} for process in processes.counted if process.summary.get(key)
    ]
    return min(found, key=lambda entry: (entry["step"], entry.get("seq", 0), entry["rank"]), default=None)
