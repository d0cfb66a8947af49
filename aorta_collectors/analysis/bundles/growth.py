"""How memory goes over the steps of one process: absolute numbers at each point, what each phase changes, and trends.

A phase is what lies between two successive points of a step, or between the last of a step and the first of the next.
What all phases change together is what the step keeps. What grows is judged at the point where a step holds least:
elsewhere, what a step only borrows is in the number as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.bundles.course import Course, Place, course_of
from aorta_collectors.analysis.bundles.memory_run import PRIVATE, Measure, MemoryRun
from aorta_collectors.analysis.bundles.stacks import GrownStack, grown_stacks
from aorta_collectors.analysis.bundles.trend import Trend, trend
from aorta_collectors.analysis.numerics.significance import median

#: Growth of less than this, over all steps or over the later half of them, is not told as one: allocators and counters
#: work in pages and segments, and what a program fills in its first steps it fills ever more slowly.
LEAST_BYTES = 1 << 20
# Of the net growth: what changes less is quiet, and what differs less from it explains it.
_QUIET, _EXPLAINS = 0.1, 0.25


@dataclass(frozen=True)
class AtPoint:
    """One number at one point over the steps that count.

    Attributes:
        median, first, last: Bytes; the latter two in the first and the last step.
        trend: Bytes a step.
    """

    place: Place
    median: float
    first_step: int
    first: int
    last_step: int
    last: int
    trend: Trend | None

    @property
    def change(self) -> int:
        return self.last - self.first

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "place": str(self.place),
            "change": self.change,
            "trend": None if self.trend is None else self.trend.to_json(),
        }


@dataclass(frozen=True)
class Phase:
    """What happens between two points.

    Attributes:
        begins, ends: The points; the latter of the next step where `crosses`.
        before, after: Medians of the absolute numbers at its ends, in bytes.
        median, total: Of what it changes: a step, and over all that count.
    """

    begins: Place
    ends: Place
    crosses: bool
    before: float
    after: float
    median: float
    total: int
    times: int

    @property
    def name(self) -> str:
        return f"{self.begins} -> {'next ' if self.crosses else ''}{self.ends}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "begins": str(self.begins), "ends": str(self.ends), "name": self.name}


@dataclass(frozen=True)
class OfMeasure:
    """One number of bytes over the run.

    Attributes:
        points: At each point of a step.
        lowest: The one of them where a step holds least.
        grows: Whether the trend there is up, by as much as counts, and goes on: in the later half of the steps alone it
            is up by as much as counts too.
        stopped: Whether it is up, and mostly was so before: something was filled, such as a cache.
        later_change: Bytes that the later half of the steps adds there.
        phases: In the order of a step.
        growing: The phases that the growth is in: one; or several of which it cannot be told; none where nothing grows.
        certain: Whether no other phase changes anything worth naming.
    """

    measure: Measure
    points: Sequence[AtPoint]
    lowest: AtPoint
    grows: bool
    stopped: bool
    later_change: int
    phases: Sequence[Phase]
    growing: Sequence[Phase]
    certain: bool

    @property
    def is_nothing(self) -> bool:
        """Whether it is 0 wherever it is told."""
        return not any(each.median or each.first or each.last for each in self.points)

    def to_json(self) -> dict[str, Any]:
        return {
            "memory": self.measure.memory,
            "name": self.measure.name,
            "is_capacity": self.measure.is_capacity,
            "grows": self.grows,
            "stopped": self.stopped,
            "later_change": self.later_change,
            "growing_phases": [phase.name for phase in self.growing],
            "certain": self.certain,
            "lowest_point": str(self.lowest.place),
            "points": [each.to_json() for each in self.points],
            "phases": [phase.to_json() for phase in self.phases],
        }


@dataclass(frozen=True)
class Growth:
    """One process.

    Attributes:
        stacks: What took most memory in which phase, where that was recorded.
    """

    course: Course
    least_bytes: int
    measures: Sequence[OfMeasure]
    stacks: Sequence[GrownStack]
    notes: Sequence[str]

    @property
    def run(self) -> MemoryRun:
        return self.course.run

    @property
    def growing(self) -> list[OfMeasure]:
        """What grows in use. Capacity that is retained, as in a private pool, is none of it.

        Of two numbers that go together, such as rss and anonymous, the main one stands for both.
        """
        return self._in_use([each for each in self.measures if each.grows])

    @property
    def stopped(self) -> list[OfMeasure]:
        """Likewise what has grown and does so no more."""
        return self._in_use([each for each in self.measures if each.stopped])

    def _in_use(self, found: Sequence[OfMeasure]) -> list[OfMeasure]:
        those = {each.measure for each in found}
        return [each for each in found if not each.measure.is_capacity and each.measure.echoes not in those]

    @property
    def is_judged(self) -> bool:
        """Whether there are steps enough to tell growth from chance."""
        return any(each.lowest.trend is not None and each.lowest.trend.low is not None for each in self.measures)

    def of(self, measure: Measure) -> OfMeasure | None:
        return next((each for each in self.measures if each.measure == measure), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "process": self.run.to_json(),
            "steps": len(self.course.steps),
            "counted_steps": len(self.course.counted),
            "least_bytes": self.least_bytes,
            "is_judged": self.is_judged,
            "history": dict(self.run.history),
            "growing": [str(each.measure) for each in self.growing],
            "measures": [each.to_json() for each in self.measures],
            "devices": [device_at_the_end(device) for device in self.course.last["devices"]],
            "host_peak_rss": self.course.last["host"]["peak_rss"],
            "stacks": [each.to_json() for each in self.stacks],
            "notes": list(self.notes),
        }


def growth(run: MemoryRun, least_bytes: int = LEAST_BYTES) -> Growth:
    """How the memory of one process goes over its steps.

    Raises:
        ArtifactError: Its lines cannot be read, or there are none.
    """
    course = course_of(run)
    found = [each for measure in course.measures if (each := _of_measure(course, measure, least_bytes)) is not None]
    stacks, notes = grown_stacks(course)
    return Growth(course, least_bytes, found, stacks, (*course.notes, *notes))


def device_at_the_end(device: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a device's allocator, with what private pools retain beside what they use."""
    private = [pool for pool in device["pools"] or () if pool["kind"] == PRIVATE]
    return {
        **device,
        "private_reserved": sum(pool["reserved"] for pool in private),
        "private_active": sum(pool["active"] for pool in private),
        "private_retained": sum(pool["reserved"] - pool["active"] for pool in private),
    }


def _of_measure(course: Course, measure: Measure, least_bytes: int) -> OfMeasure | None:
    points = []
    for place in course.places:
        at = [each for each in course.at(place, measure) if each[0] in course.counted]
        if at:
            (first_step, first), (last_step, last) = at[0], at[-1]
            slope = trend([step for step, _ in at], [value for _, value in at])
            middle = median([value for _, value in at])
            assert middle is not None
            points.append(AtPoint(place, middle, first_step, first, last_step, last, slope))
    if not points:
        return None
    lowest = min(points, key=lambda each: each.median)
    rose = lowest.trend is not None and lowest.trend.grows and lowest.change >= least_bytes
    at = [each for each in course.at(lowest.place, measure) if each[0] in course.counted]
    later = at[len(at) // 2 :]
    later_change = later[-1][1] - later[0][1]
    grows = rose and later_change >= least_bytes and not _has_stopped(later, at[-1][1] - at[0][1])
    phases = phases_of(course, measure)
    where, certain = where_of([phase.total for phase in phases]) if grows else ([], True)
    growing = [phases[index] for index in where]
    stopped = rose and not grows
    return OfMeasure(measure, points, lowest, grows, stopped, later_change, phases, growing, certain)


def _has_stopped(later: Sequence[tuple[int, int]], change: int) -> bool:
    """Whether what has grown grows no more in the later half: by no trend, and by little of all that it has grown.

    Args:
        later: (step, bytes), of the later half of the steps that count.
        change: Bytes, over all of these.
    """
    since = trend([step for step, _ in later], [value for _, value in later])
    if since is None or since.low is None or since.grows:
        return False
    return later[-1][1] - later[0][1] <= _QUIET * change


def phases_of(course: Course, measure: Measure) -> list[Phase]:
    """All phases of steps that count, in the order of the first such step."""
    found: dict[tuple[Place, Place, bool], list[tuple[int, int]]] = {}
    seen = [each for each in course.seen if each.step in course.counted and measure in each.values]
    for before, after in itertools.pairwise(seen):
        key = before.place, after.place, before.step != after.step
        found.setdefault(key, []).append((before.values[measure], after.values[measure]))
    phases = []
    for (begins, ends, crosses), changes in found.items():
        at_begin, at_end = (median([change[side] for change in changes]) or 0.0 for side in (0, 1))
        by = [after - before for before, after in changes]
        phases.append(Phase(begins, ends, crosses, at_begin, at_end, median(by) or 0.0, sum(by), len(by)))
    return phases


def where_of(changes: Sequence[float]) -> tuple[list[int], bool]:
    """Which of the phases a growth is in, by their place, and whether the others change nothing.

    What one phase takes, another may give back. Where a single phase changes something, that is it. Where several do,
    it is the one that changes as much as all of them together, the others cancelling out; else it cannot be told.

    Args:
        changes: Bytes, of each phase. Together they are more than 0.
    """
    net = sum(changes)
    loud = [index for index, change in enumerate(changes) if abs(change) > _QUIET * net]
    if len(loud) <= 1:
        return loud, True
    closest = min(loud, key=lambda index: abs(changes[index] - net))
    if abs(changes[closest] - net) <= _EXPLAINS * net:
        return [closest], False
    return loud, False
