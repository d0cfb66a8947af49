"""Stretches of time, and what lies in one of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Ranges:
    """The union of ranges, each with its beginning and without its end."""

    def __init__(self, ranges: Iterable[tuple[float, float]]) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for begin, end in sorted(ranges):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def __contains__(self, at: float) -> bool:
        index = bisect_right(self._begins, at) - 1
        return index >= 0 and at < self._ends[index]
