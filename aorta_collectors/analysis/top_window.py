"""The last seconds of a run, from its spans: how long each module and each named step took in them.

Spans come in the order of their ends, so that the parts of a module come before it. What a step has is counted when the
step's own span comes, whole: a step that takes longer than the window is in it as a whole. Memory does not grow with
the number of steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

#: Seconds that are looked back.
WINDOW_S = 10
_MODULES, _NAMED = ("phase", "layer", "brick"), ("phase", "collective", "user")
_NS = 1_000_000_000

Key = tuple[str, str]


class Sums:
    """Durations of some calls, in nanoseconds."""

    __slots__ = ("calls", "own_ns", "squares", "total_ns")

    def __init__(self) -> None:
        self.calls = 0
        self.own_ns = self.total_ns = 0
        self.squares = 0.0

    def add(self, total_ns: int, own_ns: int) -> None:
        self.calls += 1
        self.total_ns += total_ns
        self.own_ns += own_ns
        self.squares += float(total_ns) * total_ns

    def take_in(self, other: Sums) -> None:
        self.calls += other.calls
        self.total_ns += other.total_ns
        self.own_ns += other.own_ns
        self.squares += other.squares

    @property
    def mean_us(self) -> float | None:
        return self.total_ns / self.calls / 1000 if self.calls else None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation of the totals: standard deviation of the sample over mean; None of fewer than two.

        From sums of squares: within a window there are too few for that to lose digits that matter.
        """
        if self.calls < 2 or not self.total_ns:
            return None
        mean = self.total_ns / self.calls
        variance = max(0.0, self.squares - self.calls * mean * mean) / (self.calls - 1)
        return math.sqrt(variance) / mean


class Bucket:
    """Steps that ended in one second, of all ranks.

    Attributes:
        steps, step_ns: By process.
        modules: By path and direction.
        named: By name and direction.
    """

    def __init__(self) -> None:
        self.steps: defaultdict[str, int] = defaultdict(int)
        self.step_ns: defaultdict[str, int] = defaultdict(int)
        self.modules: defaultdict[Key, Sums] = defaultdict(Sums)
        self.named: defaultdict[Key, Sums] = defaultdict(Sums)

    def take_in(self, other: Bucket) -> None:
        for stem, count in other.steps.items():
            self.steps[stem] += count
            self.step_ns[stem] += other.step_ns[stem]
        for key, sums in other.modules.items():
            self.modules[key].take_in(sums)
        for key, sums in other.named.items():
            self.named[key].take_in(sums)


class _Unfinished:
    """Of a process: the step that goes on, and what the parts of its modules took."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.seen = Bucket()
        self.inside: defaultdict[str, int] = defaultdict(int)


class Window:
    """The last WINDOW_S seconds of one trial's processes."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._unfinished: dict[str, _Unfinished] = {}

    def take(self, stem: str, spans: Iterable[Mapping[str, Any]]) -> None:
        """Take in spans of one process, in the order in which they were written."""
        for span in spans:
            own = span["duration_ns"] - span["overhead_ns"]
            going_on = self._unfinished.get(stem)
            if going_on is None or going_on.step != span["step"]:
                going_on = self._unfinished[stem] = _Unfinished(span["step"])
            if span["kind"] == "step":
                self._step_ended(stem, going_on.seen, span, own)
                del self._unfinished[stem]
                continue
            key = span["layer"], span["direction"]
            if span["kind"] in _MODULES and span["layer"]:
                inside = going_on.inside.pop(span["span_id"], 0)
                going_on.inside[span["parent_span_id"]] += own
                going_on.seen.modules[key].add(own, max(0, own - inside))
            if span["kind"] in _NAMED:
                going_on.seen.named[span["name"], span["direction"]].add(own, own)
        newest = max(self._buckets, default=0)
        for second in [second for second in self._buckets if second <= newest - WINDOW_S]:
            del self._buckets[second]

    def _step_ended(self, stem: str, seen: Bucket, span: Mapping[str, Any], own_ns: int) -> None:
        seen.steps[stem] += 1
        seen.step_ns[stem] += own_ns
        second = (span["start_ns"] + span["duration_ns"]) // _NS
        self._buckets.setdefault(second, Bucket()).take_in(seen)

    def sums(self) -> Bucket:
        """All of the window together."""
        found = Bucket()
        for bucket in self._buckets.values():
            found.take_in(bucket)
        return found
