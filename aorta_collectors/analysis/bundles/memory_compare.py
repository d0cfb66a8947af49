"""The memory of two runs at the same points: absolute numbers of both first, then what lies between, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.bundles.bundle import pairs_of
from aorta_collectors.analysis.bundles.course import Place
from aorta_collectors.analysis.bundles.growth import (
    LEAST_BYTES,
    AtPoint,
    Growth,
    OfMeasure,
    Phase,
    growth,
    where_of,
)
from aorta_collectors.analysis.bundles.memory_run import Measure, MemoryRun


@dataclass(frozen=True)
class PointPair:
    """One point on both sides."""

    baseline: AtPoint
    candidate: AtPoint

    @property
    def place(self) -> Place:
        return self.baseline.place

    @property
    def difference(self) -> float:
        """Of the medians, in bytes."""
        return self.candidate.median - self.baseline.median

    def to_json(self) -> dict[str, Any]:
        return {
            "place": str(self.place),
            "baseline": self.baseline.to_json(),
            "candidate": self.candidate.to_json(),
            "difference": self.difference,
        }


@dataclass(frozen=True)
class PhasePair:
    """One phase on both sides."""

    baseline: Phase
    candidate: Phase

    @property
    def name(self) -> str:
        return self.baseline.name

    @property
    def difference(self) -> float:
        """Of what it changes, on average, in bytes a step."""
        sides = ((side.total, side.times) for side in (self.baseline, self.candidate))
        before, after = (total / times for total, times in sides)
        return after - before

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "baseline": self.baseline.to_json(),
            "candidate": self.candidate.to_json(),
            "difference": self.difference,
        }


@dataclass(frozen=True)
class MeasurePair:
    """One number on both sides.

    Attributes:
        phases: In the order of a step.
    """

    baseline: OfMeasure
    candidate: OfMeasure
    points: Sequence[PointPair]
    phases: Sequence[PhasePair]
    least_bytes: int

    @property
    def measure(self) -> Measure:
        return self.baseline.measure

    @property
    def is_nothing(self) -> bool:
        """Whether it is 0 on both sides."""
        return self.baseline.is_nothing and self.candidate.is_nothing

    @property
    def lowest(self) -> PointPair:
        """Where a step holds least, in the candidate."""
        return min(self.points, key=lambda pair: pair.candidate.median)

    @property
    def is_more(self) -> bool:
        """Whether the candidate holds more at each point, by as much as counts."""
        return min(pair.difference for pair in self.points) >= self.least_bytes

    @property
    def is_less(self) -> bool:
        return max(pair.difference for pair in self.points) <= -self.least_bytes

    @property
    def grows_more(self) -> bool:
        """Whether the candidate grows, and the baseline does not, or by less without doubt."""
        slopes = self.baseline.lowest.trend, self.candidate.lowest.trend
        if not self.candidate.grows or slopes[0] is None or slopes[1] is None:
            return self.candidate.grows
        highest, lowest = slopes[0].high, slopes[1].low
        return highest is None or lowest is None or lowest > highest

    @property
    def growing(self) -> Sequence[PhasePair]:
        """The phases that the candidate's further growth is in: one; or several of which it cannot be told.

        Where the baseline grows too, what each phase takes beyond the baseline decides. Else two things are known:
        where the candidate by itself grows, and where it takes more than the baseline. The latter alone may mislead:
        what one run borrows in one phase, and the other in another, is a difference too, and no growth.
        """
        if not self.grows_more:
            return []
        further = [pair.difference for pair in self.phases]
        beyond = {self.phases[index].name for index in where_of(further)[0]} if sum(further) > 0 else set()
        own = {phase.name for phase in self.candidate.growing}
        names = beyond if self.baseline.grows else (own & beyond) or (own | beyond)
        return [pair for pair in self.phases if pair.name in names]

    @property
    def phase(self) -> PhasePair | None:
        """The one phase that it is in; None where that cannot be told."""
        return self.growing[0] if len(self.growing) == 1 else None

    def to_json(self) -> dict[str, Any]:
        phase = self.phase
        return {
            "memory": self.measure.memory,
            "name": self.measure.name,
            "is_capacity": self.measure.is_capacity,
            "is_more": self.is_more,
            "is_less": self.is_less,
            "grows_more": self.grows_more,
            "growing_phase": None if phase is None else phase.name,
            "growing_phases": [each.name for each in self.growing],
            "points": [pair.to_json() for pair in self.points],
            "phases": [pair.to_json() for pair in self.phases],
        }


@dataclass(frozen=True)
class RunPair:
    """Two processes.

    Attributes:
        points: How many points, by name and invocation, both have, and each has alone.
        only_baseline, only_candidate: Numbers that one side alone has, such as those of a device.
    """

    baseline: Growth
    candidate: Growth
    points: tuple[int, int, int]
    measures: Sequence[MeasurePair]
    only_baseline: Sequence[Measure]
    only_candidate: Sequence[Measure]

    @property
    def found(self) -> list[MeasurePair]:
        """In what the candidate grows more, or holds more in use; of numbers that go together, the main one."""
        more = {pair.measure for pair in self.measures if pair.grows_more or pair.is_more}
        return [
            pair
            for pair in self.measures
            if pair.measure in more and not pair.measure.is_capacity and pair.measure.echoes not in more
        ]

    def to_json(self) -> dict[str, Any]:
        both, alone, other = self.points
        return {
            "pair": {"baseline": self.baseline.run.to_json(), "candidate": self.candidate.run.to_json()},
            "points": {"both": both, "baseline_alone": alone, "candidate_alone": other},
            "found": [str(pair.measure) for pair in self.found],
            "measures": [pair.to_json() for pair in self.measures],
            "only_baseline": list(map(str, self.only_baseline)),
            "only_candidate": list(map(str, self.only_candidate)),
            "baseline": self.baseline.to_json(),
            "candidate": self.candidate.to_json(),
        }


@dataclass(frozen=True)
class MemoryComparison:
    """All pairs of processes of two sides; ranks and devices are never summed."""

    pairs: tuple[RunPair, ...]
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether a candidate grows more, or holds more in use, than its baseline."""
        return any(pair.found for pair in self.pairs)

    def to_json(self) -> dict[str, Any]:
        return {
            "found": self.found,
            "pairs": [pair.to_json() for pair in self.pairs],
            "unpaired": {"baseline": list(self.only_baseline), "candidate": list(self.only_candidate)},
        }


def compare_memory(
    baseline: Sequence[MemoryRun], candidate: Sequence[MemoryRun], least_bytes: int = LEAST_BYTES
) -> MemoryComparison:
    """Compare the memory of two sides, each process with the one of its cell, trial and rank.

    Args:
        least_bytes: What counts as a difference, or as growth over all steps.

    Raises:
        ArtifactError: Lines cannot be read.
    """
    pairs, only_baseline, only_candidate = pairs_of(baseline, candidate)
    compared = tuple(_compared(growth(a, least_bytes), growth(b, least_bytes), least_bytes) for a, b in pairs)
    return MemoryComparison(compared, only_baseline, only_candidate)


def _compared(a: Growth, b: Growth, least_bytes: int) -> RunPair:
    identities = [{(each.place.name, each.invocation) for each in side.course.seen} for side in (a, b)]
    both = identities[0] & identities[1]
    of_b = {each.measure: each for each in b.measures}
    pairs = []
    for left in a.measures:
        right = of_b.get(left.measure)
        points = _points(left, right) if right is not None else []
        if right is not None and points:
            pairs.append(MeasurePair(left, right, points, _phases(left, right), least_bytes))
    known = {pair.measure for pair in pairs}
    return RunPair(
        a,
        b,
        (len(both), len(identities[0] - both), len(identities[1] - both)),
        pairs,
        [each.measure for each in a.measures if each.measure not in known and not each.is_nothing],
        [each.measure for each in b.measures if each.measure not in known and not each.is_nothing],
    )


def _points(a: OfMeasure, b: OfMeasure) -> list[PointPair]:
    others = {each.place: each for each in b.points}
    return [PointPair(each, others[each.place]) for each in a.points if each.place in others]


def _phases(a: OfMeasure, b: OfMeasure) -> list[PhasePair]:
    others = {each.name: each for each in b.phases}
    return [PhasePair(each, others[each.name]) for each in a.phases if each.name in others]
