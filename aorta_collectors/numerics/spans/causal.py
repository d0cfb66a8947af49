"""One causal order of the spans of several ranks: Lamport clocks that agree at each collective.

A sidecar sends no messages, so the ranks' clocks know nothing of one another while they run. But a collective is met
by all its ranks: nothing after it, on any of them, comes before anything that was ahead of it on another. So each clock
is set forward, when spans are read, to the latest of those that met. Clocks are those of L. Lamport, "Time, Clocks, and
the Ordering of Events in a Distributed System", 1978; a collective counts as one event that all its ranks share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

#: What a rank met: the process group, and which of its collectives, counted from 0.
Meeting = tuple[str, int]


def meeting(span: Mapping[str, Any]) -> Meeting | None:
    """Where the ranks of a span's collective meet; None for any other span, and for a collective of unknown place."""
    attributes = span["attributes"]
    group, sequence = attributes.get("group"), attributes.get("sequence")
    if span["kind"] != "collective" or not isinstance(sequence, int) or group is None:
        return None
    return str(group), sequence


def causal_clocks(processes: Sequence[Sequence[tuple[int, Meeting | None]]]) -> list[list[int]]:
    """Clocks that are higher for whatever happened later, on the same rank or beyond a collective.

    Args:
        processes: For each process its events in the order of its own clock: that clock, and the collective that the
            event is.

    Returns:
        The same shape: the clock of each event. Where a rank never came to a collective that others met, or they met in
        orders that exclude one another, the others do not wait for it.
    """
    expected: dict[Meeting, set[int]] = {}
    for rank, events in enumerate(processes):
        for _, met in events:
            if met is not None:
                expected.setdefault(met, set()).add(rank)
    waiting: dict[Meeting, dict[int, int]] = {}
    clocks: list[list[int]] = [[] for _ in processes]
    ahead = [0] * len(processes)  # what a process's own clock is to be set forward by
    ready = deque(range(len(processes)))
    stuck: dict[int, Meeting] = {}
    while ready or stuck:
        if not ready:  # they wait for one another: the first of them goes on alone
            rank, met = next(iter(stuck.items()))
            _meet({rank: waiting[met].pop(rank)}, processes, clocks, ahead)
            expected[met].discard(rank)
            del stuck[rank]
            ready.append(rank)
        rank = ready.popleft()
        events = processes[rank]
        while len(clocks[rank]) < len(events):
            own, met = events[len(clocks[rank])]
            if met is None:
                clocks[rank].append(own + ahead[rank])
                continue
            there = waiting.setdefault(met, {})
            there[rank] = own + ahead[rank]
            if set(there) < expected[met]:
                stuck[rank] = met
                break
            _meet(there, processes, clocks, ahead)
            for other in there:
                if other != rank:
                    del stuck[other]
                    ready.append(other)
            waiting.pop(met)
    return clocks


def _meet(
    there: Mapping[int, int],
    processes: Sequence[Sequence[tuple[int, Meeting | None]]],
    clocks: Sequence[list[int]],
    ahead: list[int],
) -> None:
    """Let ranks that have all come to a collective leave it with one clock."""
    latest = max(there.values())
    for rank in there:
        ahead[rank] = latest - processes[rank][len(clocks[rank])][0]
        clocks[rank].append(latest)
