"""Who took a device's memory between two points, and how long it was kept: torch's own record of its allocations.

The application has to have asked for that record (torch.cuda.memory._record_memory_history). It is a ring: when it is
full, the oldest entries give way. What an entry belongs to is told by its time, and the time of a point is taken when
its look is over, in which the program takes no memory: so clocks need to agree to no more than that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from aorta_collectors.memory.stacks import Stack, stack_of

# Either may come alone, where the application leaves the other out of its record.
_FREED = ("free_requested", "free_completed")


class Moment(NamedTuple):
    """A point: its order in the process, and microseconds since 1970."""

    order: int
    time_us: int


@dataclass(frozen=True)
class Size:
    """What some allocations come to."""

    bytes: int = 0
    count: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.bytes + other.bytes, self.count + other.count)

    def __sub__(self, other: Size) -> Size:
        return Size(self.bytes - other.bytes, self.count - other.count)


class _Living(NamedTuple):
    """An allocation that is alive; born is the order of the first point after it, None before the first known one."""

    size: int
    stack: Stack
    born: int | None


@dataclass
class Change:
    """What happened on a device between two successive points.

    Attributes:
        since, until: Orders of the points.
        complete: False where entries of the record had given way.
        allocated, freed: All of it.
        net: By stack, what was taken less what was given back of what this stack had taken at any time.
        lifetimes: By stack, of what was taken: by order of the first point after it was given back; None while alive.
        released: Of what was given back and had been taken before: by order of the first point after that; None where
            that is not known.
    """

    since: int
    until: int
    complete: bool = True
    allocated: Size = Size()
    freed: Size = Size()
    net: dict[Stack, Size] = field(default_factory=dict)
    lifetimes: dict[Stack, dict[int | None, Size]] = field(default_factory=dict)
    released: dict[int | None, Size] = field(default_factory=dict)

    def _born(self, size: int, stack: Stack) -> None:
        one = Size(size, 1)
        self.allocated += one
        _add(self.net, stack, one)

    def _died(self, size: int, living: _Living | None) -> None:
        one = Size(living.size if living is not None else size, 1)
        self.freed += one
        if living is not None:
            _add(self.net, living.stack, Size() - one)
        if living is None or living.born != self.until:
            _add(self.released, living.born if living is not None else None, one)

    def _lived(self, living: _Living, freed: int | None) -> None:
        _add(self.lifetimes.setdefault(living.stack, {}), freed, Size(living.size, 1))


class Lifetimes:
    """Follows one device's record of allocations from point to point."""

    def __init__(self) -> None:
        self._living: dict[int, _Living] = {}
        self._read_to: int | None = None

    def read(self, entries: Sequence[Mapping[str, Any]], moments: Sequence[Moment]) -> list[Change]:
        """What happened between each two of some successive points.

        Args:
            entries: The whole record, oldest first, as torch.cuda.memory._snapshot()["device_traces"] has it.
            moments: In their order, at least two; the first of them is the last one of an earlier call, if there was.
        """
        times = [moment.time_us for moment in moments]
        changes = [Change(before.order, after.order) for before, after in pairwise(moments)]
        oldest = int(entries[0]["time_us"]) if entries else times[-1] + 1
        known_from = times[0] if self._read_to is None else self._read_to
        if oldest > known_from:
            # What was given back meanwhile would be taken for alive.
            self._living.clear()
            for change, began in zip(changes, times, strict=False):
                change.complete = oldest <= began
        for entry in entries:
            time_us = int(entry["time_us"])
            if self._read_to is not None and time_us <= self._read_to:
                continue
            if time_us > times[-1]:
                break
            index = bisect_left(times, time_us) - 1
            self._take(entry, changes[index] if index >= 0 else None, changes)
        self._read_to = times[-1]
        by_end = {change.until: change for change in changes}
        for living in self._living.values():
            if living.born in by_end:
                by_end[living.born]._lived(living, None)
        return changes

    def _take(self, entry: Mapping[str, Any], change: Change | None, changes: Iterable[Change]) -> None:
        """
        Args:
            change: In which the entry falls; None before the first.
        """
        action = entry["action"]
        if action == "alloc":
            stack = stack_of(entry.get("frames", ()))
            size = int(entry["size"])
            self._living[int(entry["addr"])] = _Living(size, stack, None if change is None else change.until)
            if change is not None:
                change._born(size, stack)
        elif action in _FREED:
            living = self._living.pop(int(entry["addr"]), None)
            if change is None or (living is None and action == _FREED[1]):
                return  # completed after it was requested, mostly
            change._died(int(entry["size"]), living)
            if living is not None:
                born = next((other for other in changes if other.until == living.born), None)
                if born is not None:
                    born._lived(living, change.until)


def _add(sizes: dict[Any, Size], key: Any, size: Size) -> None:
    sizes[key] = sizes.get(key, Size()) + size


def largest(net: Mapping[Stack, Size], most: int) -> list[tuple[Stack, Size]]:
    """The stacks that grew most, and by what."""
    grown = Counter({stack: size.bytes for stack, size in net.items() if size.bytes > 0})
    return [(stack, net[stack]) for stack, _ in grown.most_common(most)]
