"""Whether something grows from step to step: the slope of Theil and Sen, with an interval.

The slope is the median of the slopes between all pairs of points (Sen, Journal of the American Statistical Association
63, 1968), which a few outliers do not move. Its interval is Sen's, from the variance of Kendall's statistic with the
correction for ties, in the normal approximation. It takes points for independent of each other. Memory is not: an
allocator that holds on to what it once had makes the interval narrower than it should be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: Fewer points than these have no interval: no trend of theirs could be told from chance.
LEAST = 5
# Points that are looked at: all pairs of more would take long, and change little.
_MOST = 200
_NORMAL_975 = 1.959963984540054


@dataclass(frozen=True)
class Trend:
    """
    Attributes:
        slope: Per unit of x.
        low, high: Interval of 95 %; None with too few points.
        points: How many there are.
    """

    slope: float
    low: float | None
    high: float | None
    points: int

    @property
    def grows(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low is not None and self.low > 0

    @property
    def shrinks(self) -> bool:
        return self.high is not None and self.high < 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "grows": self.grows, "shrinks": self.shrinks}


def trend(x: Sequence[float], y: Sequence[float]) -> Trend | None:
    """The slope of y over x; None of fewer than two different x."""
    points = list(zip(x, y, strict=True))
    count = len(points)
    if count > _MOST:
        points = [points[index * (count - 1) // (_MOST - 1)] for index in range(_MOST)]
    slopes = sorted(
        (y2 - y1) / (x2 - x1) for index, (x1, y1) in enumerate(points) for x2, y2 in points[index + 1 :] if x1 != x2
    )
    if not slopes:
        return None
    middle = len(slopes) // 2
    slope = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
    if len(points) < LEAST:
        return Trend(slope, None, None, count)
    reach = _NORMAL_975 * math.sqrt(_variance([point[1] for point in points]))
    # As many slopes lie below the interval as above it.
    beyond = max(0, math.floor((len(slopes) - reach) / 2) - 1)
    return Trend(slope, slopes[beyond], slopes[-1 - beyond], count)


def _variance(y: Sequence[float]) -> float:
    """Of Kendall's statistic, where x has no ties."""
    size = len(y)
    ties = sum(tied * (tied - 1) * (2 * tied + 5) for tied in Counter(y).values())
    return (size * (size - 1) * (2 * size + 5) - ties) / 18
