"""What a few repetitions say of a median: an exact interval where there are enough of them, and else the values alone.

The interval is that of order statistics. Whatever the values are distributed like, each is below their median with
probability 1/2, so how many of n are follows the binomial distribution, and the k-th smallest and the k-th largest
value enclose the median with probability 1 - 2 P(Bin(n, 1/2) < k). The largest k that leaves at least 95 % is taken.
It takes runs for independent of each other, which an order in turns and equal warm-up are there for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95
#: Fewer values than these have no interval of 95 %: even the smallest and the largest enclose the median less often.
LEAST = 6


@dataclass(frozen=True)
class Interval:
    """
    Attributes:
        low, high: Two of the values.
        confidence: The exact probability with which such an interval covers the median, at least `CONFIDENCE`.
    """

    low: float
    high: float
    confidence: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Sample:
    """One number of several runs, in the order of the repetitions."""

    values: tuple[float, ...]

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def interval(self) -> Interval | None:
        """Of the median; None of too few values."""
        return median_interval(self.values)

    @property
    def spread(self) -> float:
        """Between the largest and the smallest."""
        return max(self.values) - min(self.values) if self.values else 0.0

    def to_json(self) -> dict[str, Any]:
        found = self.interval
        interval = None if found is None else {"low": found.low, "high": found.high, "confidence": found.confidence}
        return {"values": list(self.values), "median": self.median, "interval": interval}

    def describe(self, write: Callable[[float], str]) -> str:
        """Such as "2.5 s (2.4 s to 2.6 s, 96.9%)"; of too few values "2.5 s (of 2.4 s, 2.6 s)".

        Args:
            write: A value as a person reads it.
        """
        if self.median is None:
            return "no value"
        found = self.interval
        if found is not None:
            return f"{write(self.median)} ({write(found.low)} to {write(found.high)}, {found.confidence:.1%})"
        if len(self.values) == 1:
            return write(self.values[0])
        listed = ", ".join(write(value) for value in self.values)
        return f"{write(self.median)} (of {listed})"


@dataclass(frozen=True)
class Paired:
    """One number of runs that belong together in pairs, by repetition.

    Attributes:
        repetitions: Those that have both.
        first, second: Its values on both sides.
    """

    repetitions: tuple[int, ...]
    first: Sample
    second: Sample

    @property
    def differences(self) -> Sample:
        """Second less first, pair by pair."""
        return Sample(tuple(b - a for a, b in zip(self.first.values, self.second.values, strict=True)))

    @property
    def aside(self) -> str:
        """Why the median difference has another sign than the difference of the medians, where it has; or ""."""
        differs, first, second = self.differences.median, self.first.median, self.second.median
        if not differs or first is None or second is None or (second - first) * differs >= 0:
            return ""
        return "; that is the median of the differences, and not the difference of the medians"

    @property
    def increases(self) -> int:
        """Pairs in which the second is larger."""
        return sum(difference > 0 for difference in self.differences.values)

    @property
    def decreases(self) -> int:
        return sum(difference < 0 for difference in self.differences.values)

    def to_json(self) -> dict[str, Any]:
        return {
            "repetitions": list(self.repetitions),
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "differences": self.differences.to_json(),
        }


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """Values by repetition, of both sides, as far as both have them."""
    both = tuple(sorted(first.keys() & second.keys()))
    return Paired(both, Sample(tuple(first[key] for key in both)), Sample(tuple(second[key] for key in both)))


def median_interval(values: Sequence[float]) -> Interval | None:
    """An interval for the median of what the values come from; None of fewer than `LEAST` values."""
    found = interval_ranks(len(values))
    if found is None:
        return None
    rank, confidence = found
    ordered = sorted(values)
    return Interval(ordered[rank - 1], ordered[-rank], confidence)


def interval_ranks(count: int) -> tuple[int, float] | None:
    """k, counted from 1, so that the k-th smallest and the k-th largest of `count` values enclose the median.

    Returns:
        The largest such k, and the exact probability; None where no k has `CONFIDENCE`.
    """
    found = None
    below = 0
    # Whole numbers until the last division, which is rounded correctly.
    for rank in range(1, count // 2 + 1):
        below += math.comb(count, rank - 1)
        confidence = (2**count - 2 * below) / 2**count
        if confidence < CONFIDENCE:
            break
        found = rank, confidence
    return found
