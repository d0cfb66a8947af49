"""Logical clocks (Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978)."""

from __future__ import annotations

import itertools


class LamportClock:
    """The clock of one process. What happened before something else here, or in what started the process, has less.

    What other ranks do shows in no message of ours, since a sidecar sends none. Their clocks are brought into one order
    when spans are read, by the collectives that they took part in (`causal`).

    Args:
        seen: The clock of the process that started this one; 0 for none.
    """

    def __init__(self, seen: int = 0) -> None:
        # One step in C, so that threads never get the same number.
        self.tick = itertools.count(seen + 1).__next__
