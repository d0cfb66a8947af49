"""Durations of one module in one direction: how many, how long, how far apart, in memory that does not grow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from aorta_collectors.numerics.brick import Timing
from aorta_collectors.observe.cost import Histogram

_NS = 1e-9


class BrickTimes:
    """Takes durations in.

    Attributes:
        calls: Taken in.
        self_s: Their sum without that of the parts, in seconds.
        least_self_s: The least of these.
    """

    __slots__ = ("_histogram", "_mean", "_squares", "_steady", "calls", "least_self_s", "self_s")

    def __init__(self) -> None:
        self._histogram = Histogram()
        self._mean = self._squares = 0.0
        self._steady = self.calls = 0
        self.self_s = 0.0
        self.least_self_s = math.inf

    def add(self, seconds: float, self_seconds: float, *, warms_up: bool = False) -> None:
        """One call.

        Args:
            warms_up: Leaves it out of the coefficient of variation.

        The variance is Welford's: Note on a Method for Calculating Corrected Sums of Squares and Products,
        Technometrics 4(3), 1962.
        """
        self.calls += 1
        self._histogram.add(seconds)
        self.self_s += self_seconds
        self.least_self_s = min(self.least_self_s, self_seconds)
        if warms_up:
            return
        self._steady += 1
        off = seconds - self._mean
        self._mean += off / self._steady
        self._squares += off * (seconds - self._mean)

    @property
    def total_s(self) -> float:
        return self._histogram.total

    @property
    def mean_s(self) -> float | None:
        return self.total_s / self.calls if self.calls else None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation: the standard deviation (of the sample) over the mean; None of fewer than two."""
        if self._steady < 2 or self._mean <= 0:
            return None
        return math.sqrt(self._squares / (self._steady - 1)) / self._mean

    def quantile(self, share: float) -> float | None:
        """In seconds, within 5 %."""
        return self._histogram.quantile(share)


def with_self_times(timings: Iterable[Timing]) -> Iterator[tuple[Timing, float, float]]:
    """(timing, its seconds, the same without the calls inside it), of timings in the order of their ends.

    What ended before a call did and began no earlier lies inside it. A module that activation checkpointing calls again
    lies inside a backward.
    """
    finished: list[Timing] = []  # inside nothing so far
    for timing in timings:
        own_ns = max(0, timing.own_ns)
        inside = 0
        while finished and finished[-1].start_ns >= timing.start_ns:
            inside += max(0, finished.pop().own_ns)
        finished.append(timing)
        yield timing, own_ns * _NS, max(0, own_ns - inside) * _NS
