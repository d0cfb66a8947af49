"""What observing costs: seconds in hooks and in drains, step by step, in memory that does not grow.

Times of all steps go into histograms with buckets of equal ratio. A quantile read from one is within 5 % of the exact
one, whatever the number of steps. How long the steps took, in their order, is kept beside them in a series of bounded
length.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

# Buckets of ratio 1.09 from a nanosecond up; a duration stands for its bucket's geometric middle, at most 4.5 % away.
_RATIO = 1.09
_SMALLEST = 1e-9
_PER_LOG = 1.0 / math.log(_RATIO)
_BUCKETS = 420  # the last one ends at 60 days
_SERIES_LIMIT = 1024


class Histogram:
    """Counts of durations, for quantiles with a relative error of at most 5 %.

    Durations below a nanosecond count as 0, those of 60 days and more as 60 days.

    Attributes:
        count: Durations taken in.
        total: Their sum in seconds.
    """

    __slots__ = ("_buckets", "_zeros", "count", "total")

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self._zeros = 0
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Take in one duration, finite."""
        self.count += 1
        self.total += seconds
        if seconds < _SMALLEST:
            self._zeros += 1
        else:
            self._buckets[min(int(math.log(seconds / _SMALLEST) * _PER_LOG), _BUCKETS - 1)] += 1

    def quantile(self, share: float) -> float | None:
        """The duration in seconds below which `share` (0 to 1) of all lie; None where there is none.

        Between two durations it is interpolated linearly, as numpy.quantile does.
        """
        if not self.count:
            return None
        rank = share * (self.count - 1)
        low = self._at(math.floor(rank))
        return low + (self._at(math.ceil(rank)) - low) * (rank - math.floor(rank))

    def _at(self, rank: int) -> float:
        """About the duration that has `rank` smaller ones before it."""
        seen = self._zeros
        if rank < seen:
            return 0.0
        for index, count in enumerate(self._buckets):
            seen += count
            if rank < seen:
                return _SMALLEST * math.pow(_RATIO, index + 0.5)
        return _SMALLEST * math.pow(_RATIO, _BUCKETS)  # two threads added at once, and one bucket missed it


class Series:
    """Durations in their order, at most 1,024 values however many there are.

    When it is full, neighbours are averaged pairwise, and each value stands for twice as many durations from then on.
    The last ones, too few for a value of their own, are left out.

    Attributes:
        per_value: Durations that one value is the mean of: 1, 2, 4, ...
    """

    __slots__ = ("_count", "_sum", "_values", "per_value")

    def __init__(self) -> None:
        self._values = array("d")
        self._sum = 0.0
        self._count = 0
        self.per_value = 1

    def add(self, seconds: float) -> None:
        self._sum += seconds
        self._count += 1
        if self._count < self.per_value:
            return
        self._values.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._values) >= _SERIES_LIMIT:
            pairs = zip(self._values[::2], self._values[1::2], strict=True)
            self._values = array("d", ((first + second) / 2 for first, second in pairs))
            self.per_value *= 2

    def milliseconds(self) -> list[float]:
        """The values, rounded to microseconds."""
        return [round(seconds * 1e3, 3) for seconds in self._values]


class Cost:
    """Adds up what hooks take within a step, and keeps the distribution over all steps.

    Attributes:
        hook_s: Seconds that hooks have taken in the step at hand, without drains. Hooks add to it; nothing else is on
            their path. Threads that add at the same moment may lose one addition, which does no harm.
    """

    __slots__ = ("_began", "_drains", "_hooks", "_series", "_steps", "hook_s")

    def __init__(self) -> None:
        self.hook_s = 0.0
        self._began: float | None = None
        self._hooks = Histogram()
        self._drains = Histogram()
        self._steps = Histogram()
        self._series = Series()

    def timed(self, function: Callable[..., None], *args: object) -> None:
        """Call `function`, whose time is that of a hook. Not inside another hook whose time is taken."""
        started = perf_counter()
        try:
            function(*args)
        finally:
            self.hook_s += perf_counter() - started

    def end_step(self, now: float, *, counts: bool = True) -> None:
        """A step ends and the next one begins.

        The first call begins the first step, and what hooks took before it belongs to none.

        Args:
            now: time.perf_counter(), in seconds.
            counts: False leaves it out, as if it had never been.
        """
        if self._began is not None and counts:
            self._series.add(now - self._began)
            self._count(now - self._began)
        self._began = now
        self.hook_s = 0.0

    def finish(self, now: float, *, counts: bool = True) -> None:
        """The last step ends; what comes until the next `end_step` belongs to none.

        It is left out of the series: nothing tells its end from what the program does after its last step.
        """
        if self._began is not None and counts:
            self._count(now - self._began)
        self._began = None
        self.hook_s = 0.0

    def _count(self, seconds: float) -> None:
        self._steps.add(seconds)
        self._hooks.add(self.hook_s)

    def drained(self, seconds: float) -> None:
        """Handing on what was seen has taken this long."""
        self._drains.add(seconds)

    def fields(self) -> dict[str, Any]:
        """Median and 95th percentile in milliseconds, None where nothing was measured.

        `share_of_step` is the part of all measured steps' time that hooks and drains took: a step lasts from its
        beginning to that of the next one.
        """
        fields: dict[str, Any] = {"steps_measured": self._steps.count}
        for name, times in (("hook", self._hooks), ("drain", self._drains), ("step", self._steps)):
            for percent in (50, 95):
                seconds = times.quantile(percent / 100)
                fields[f"{name}_ms_p{percent}"] = None if seconds is None else round(seconds * 1e3, 6)
        total = self._steps.total
        spent = self._hooks.total + self._drains.total
        fields["share_of_step"] = round(spent / total, 6) if total > 0 else None
        return fields

    def step_times(self) -> dict[str, Any]:
        """The series of step durations in milliseconds, and how many steps each value is the mean of."""
        return {"step_times_ms": self._series.milliseconds(), "steps_per_time": self._series.per_value}
