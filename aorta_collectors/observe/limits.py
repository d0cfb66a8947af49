"""When a value counts as bad though it is finite: too large, or out of the range that was promised for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Limits(NamedTuple):
    """What one tensor is held against, in the tensor's own unit.

    Attributes:
        huge: A finite element with |x| above it counts as huge.
        low, high: A finite element outside [low, high] counts as out of range.
    """

    huge: float = 1e10
    low: float = -math.inf
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        return self.low != -math.inf or self.high != math.inf


@dataclass(frozen=True)
class Bound:
    """An allowed range for the tensors of every layer whose name contains `pattern`; the empty one is in each name."""

    pattern: str
    low: float
    high: float


class Ranges:
    """Which range holds for a layer.

    Attributes:
        unmatched: Bounds that no layer has matched so far.
    """

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self._bounds = bounds
        self.unmatched = list(bounds)

    def of(self, layer: str) -> tuple[float, float] | None:
        """The range of the first bound that matches `layer`, or None."""
        for bound in self._bounds:
            if bound.pattern in layer:
                if bound in self.unmatched:
                    self.unmatched.remove(bound)
                return bound.low, bound.high
        return None
