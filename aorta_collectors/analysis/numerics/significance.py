"""Whether two samples of durations differ by more than chance.

The test is that of Mann and Whitney (Annals of Mathematical Statistics 18, 1947), two-sided, in the normal
approximation with corrections for ties and for continuity. It compares ranks: durations have a long tail and no normal
distribution, and one slow step says little. For many comparisons at once, p-values are adjusted by Holm's method
(Scandinavian Journal of Statistics 6, 1979), which bounds the chance of one wrong "differs" among all of them.

Steps of one run are not independent of each other: what is significant may be the machine's state in that run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Fewer values on a side are too few: the approximation is poor, and little could be significant.
LEAST = 8
#: Adjusted p-values below this are significant.
LEVEL = 0.05


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The p-value of the hypothesis that both come from one distribution; None with fewer than LEAST on a side."""
    if min(len(a), len(b)) < LEAST:
        return None
    entries = sorted([(value, 0) for value in a] + [(value, 1) for value in b])
    count, rank_sum, ties, index = len(entries), 0.0, 0, 0
    while index < count:
        end = index
        while end < count and entries[end][0] == entries[index][0]:
            end += 1
        mean_rank = (index + 1 + end) / 2
        rank_sum += mean_rank * sum(side == 0 for _, side in entries[index:end])
        ties += (end - index) ** 3 - (end - index)
        index = end
    product = len(a) * len(b)
    spread = math.sqrt(product / 12 * (count + 1 - ties / (count * (count - 1))))
    if spread == 0:
        return 1.0
    distance = abs(rank_sum - len(a) * (len(a) + 1) / 2 - product / 2)
    return math.erfc(max(0.0, distance - 0.5) / spread / math.sqrt(2))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted for their number; None stays None and does not count."""
    known = sorted((value, place) for place, value in enumerate(p_values) if value is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for index, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - index)))
        adjusted[place] = largest
    return adjusted


def median(values: Sequence[float]) -> float | None:
    """None of nothing."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return None
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
