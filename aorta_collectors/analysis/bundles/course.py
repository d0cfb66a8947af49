"""Memory over the steps of one process: the points of each step, in their order, with all numbers of each."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aorta_collectors.analysis.bundles.lines import Line
from aorta_collectors.analysis.bundles.memory_run import Measure, MemoryRun, measures_of
from aorta_collectors.errors import ArtifactError


class Place(NamedTuple):
    """A point of a step: its name, and how many times the name had come before in the step."""

    name: str
    nth: int

    def __str__(self) -> str:
        return f"{self.name} #{self.nth + 1}" if self.nth else self.name


class Seen(NamedTuple):
    """One point."""

    step: int
    place: Place
    invocation: int
    values: Mapping[Measure, int]


@dataclass(frozen=True)
class Course:
    """
    Attributes:
        seen: All points, in their order.
        by_place: The same, by their place in a step.
        measures: The numbers that points have, in the order of the first that has them.
        last: The line of the last point, with its pools and peaks.
        notes: What could not be read, a sentence each.
    """

    run: MemoryRun
    seen: Sequence[Seen]
    by_place: Mapping[Place, Sequence[Seen]]
    measures: Sequence[Measure]
    last: Line
    notes: Sequence[str]

    @functools.cached_property
    def steps(self) -> list[int]:
        """Those that have points; what was seen before the first step, as step 0, is none."""
        return sorted({each.step for each in self.seen if each.step > 0})

    @functools.cached_property
    def counted(self) -> frozenset[int]:
        """Steps after the first, in which memory is taken for what stays; the first where there is no other."""
        return frozenset(self.steps[1:] or self.steps)

    @functools.cached_property
    def places(self) -> list[Place]:
        """Points of a step, in the order of the first step that counts."""
        return list(dict.fromkeys(each.place for each in self.seen if each.step in self.counted))

    def at(self, place: Place, measure: Measure) -> list[tuple[int, int]]:
        """(step, bytes) of one number at one point of each step, the first included."""
        return [(each.step, each.values[measure]) for each in self.by_place[place] if measure in each.values]


def course_of(run: MemoryRun) -> Course:
    """Read the points of one process.

    Raises:
        ArtifactError: There are none, or a line is none.
    """
    lines = run.lines
    seen: list[Seen] = []
    by_place: dict[Place, list[Seen]] = {}
    measures: dict[Measure, None] = {}
    nth: Counter[tuple[int, str]] = Counter()
    last: dict[str, Any] | None = None
    for line in lines:
        values = dict(measures_of(line))
        measures |= dict.fromkeys(values)
        at = line["step"], line["name"]
        place = Place(line["name"], nth[at])
        seen.append(Seen(line["step"], place, line["invocation"], values))
        by_place.setdefault(place, []).append(seen[-1])
        nth[at] += 1
        last = line
    if last is None:
        told = (*run.unfinished, *lines.notes)
        why = f": {'; '.join(told)}" if told else ""
        raise ArtifactError(f"{run.label}: memory was looked at nowhere{why}")
    return Course(run, seen, by_place, tuple(measures), last, (*run.unfinished, *lines.notes))
