"""From blocks to numbers: ratios and differences of medians, with intervals by resampling whole rounds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

_RESAMPLES = 2000


class Estimate(NamedTuple):
    """A number and the 95 percent interval around it."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


class Samples:
    """Seconds by variant, round by round. A round's variants belong together: they met the same machine.

    Args:
        told: How many rounds there are and what else the machine did, in words.
    """

    def __init__(self, rounds: Sequence[dict[str, float]], told: str = "") -> None:
        self.rounds = list(rounds)
        self.told = told

    def median(self, name: str) -> float:
        return statistics.median(found[name] for found in self.rounds)

    def estimate(self, statistic: Callable[[Callable[[str], float]], float], seed: int = 0) -> Estimate:
        """`statistic` of the medians, which it gets as a function of the variant's name.

        The interval is that of 2,000 resamples of the rounds; a single round has none, and gives the value thrice.
        """
        value = statistic(self.median)
        chance = random.Random(seed)
        drawn = sorted(
            statistic(Samples(chance.choices(self.rounds, k=len(self.rounds))).median) for _ in range(_RESAMPLES)
        )
        return Estimate(value, drawn[_RESAMPLES // 40], drawn[-1 - _RESAMPLES // 40])

    def ratio(self, name: str, to: str) -> Estimate:
        return self.estimate(lambda median: median(name) / median(to))

    def paired(self, name: str, to: str) -> float:
        """Median of the rounds' own ratios: what slow drifts of the machine leave alone."""
        return statistics.median(found[name] / found[to] for found in self.rounds)

    def added(self, name: str, to: str) -> Estimate:
        return self.estimate(lambda median: median(name) - median(to))

    def ratio_of_added(self, name: str, other: str, to: str) -> Estimate:
        """(name - to) / (other - to); an `other` that is no slower than `to` counts as 0.1 percent slower."""
        return self.estimate(lambda median: (median(name) - median(to)) / floor(median(other) - median(to), median(to)))


def floor(added: float, bare: float) -> float:
    """A difference to divide by: noise can make it zero, or less."""
    return max(added, 1e-3 * bare)
