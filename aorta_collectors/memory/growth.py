"""The lines of growth_<stem>.jsonl: the stacks that took most memory between two points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from aorta_collectors.memory.allocator import Allocator
from aorta_collectors.memory.devices import RECORDED, STATE_ONLY
from aorta_collectors.memory.lifetimes import Change, Lifetimes, Moment, Size, largest
from aorta_collectors.memory.python_heap import HeapChange, PythonHeap
from aorta_collectors.memory.stacks import Stack, told

HOST = "host"


class Seen(NamedTuple):
    """A point that was looked at: `time_ns` is when the look was over."""

    step: int
    order: int
    name: str
    invocation: int
    time_ns: int

    @property
    def identity(self) -> dict[str, Any]:
        return {"order": self.order, "name": self.name, "invocation": self.invocation}

    @property
    def moment(self) -> Moment:
        return Moment(self.order, self.time_ns // 1000)


class Growth:
    """Compares each point with the one before it, where the application has allocations recorded.

    Args:
        allocator: Of the devices.
        most: Stacks of a line.

    Attributes:
        history: By memory (host, cuda:0, ...), whether anything was recorded, or its state alone is known.
    """

    def __init__(self, allocator: Allocator, most: int) -> None:
        self._allocator = allocator
        self._most = most
        self._heap = PythonHeap()
        self._on_host: Seen | None = None
        self._on_devices: dict[str, list[Seen]] = {}
        self._lifetimes: dict[str, Lifetimes] = {}
        self._lines: list[dict[str, Any]] = []
        self.history = {HOST: STATE_ONLY}

    def python_bytes(self, traced: int | None) -> int | None:
        """What Python's objects take, without what looking at them does.

        Args:
            traced: What tracemalloc has; None where the application has not started it.
        """
        return traced if traced is None or self._on_host is None else self._heap.bytes

    def looked(self, seen: Seen, *, is_tracing: bool, devices: Mapping[str, str]) -> None:
        """A point has been looked at.

        Args:
            is_tracing: Whether tracemalloc is.
            devices: Of each device, whether its history is recorded.
        """
        if is_tracing:
            change, before = self._heap.read(), self._on_host
            self.history[HOST] = RECORDED
            if before is None or change is not None:
                self._on_host = seen
            if before is not None and change is not None:
                self._lines.append(self._of_heap(before, seen, change))
        elif self._on_host is not None:
            self._on_host = None
            self._heap.forget()
        for device, history in devices.items():
            self.history.setdefault(device, history)
            if history == RECORDED:
                self.history[device] = RECORDED
                self._on_devices.setdefault(device, []).append(seen)
            else:
                self._on_devices.pop(device, None)
                self._lifetimes.pop(device, None)

    def take(self) -> list[dict[str, Any]]:
        """The lines since the last call. Reads what devices have recorded, once for all points since."""
        waiting = {device: points for device, points in self._on_devices.items() if len(points) > 1}
        if waiting:
            recorded = self._allocator.traces()
            for device, points in waiting.items():
                index = int(device.partition(":")[2])
                entries = recorded[index] if index < len(recorded) else ()
                lifetimes = self._lifetimes.setdefault(device, Lifetimes())
                changes = lifetimes.read(entries, [seen.moment for seen in points])
                self._on_devices[device] = points[-1:]
                self._lines += self._of_device(device, points, changes)
        lines, self._lines = self._lines, []
        return lines

    def _of_heap(self, before: Seen, after: Seen, change: HeapChange) -> dict[str, Any]:
        return {
            **_pair(HOST, "tracemalloc", before, after),
            "complete": True,
            "bytes": change.total,
            "allocated": None,
            "freed": None,
            "grown_stacks": _grown(change.net),
            "stacks": [_stack(stack, size, None) for stack, size in largest(change.net, self._most)],
            "released": None,
        }

    def _of_device(self, device: str, points: Sequence[Seen], changes: Sequence[Change]) -> Iterable[dict[str, Any]]:
        for (before, after), change in zip(pairwise(points), changes, strict=True):
            yield {
                **_pair(device, "torch.cuda", before, after),
                "complete": change.complete,
                "bytes": change.allocated.bytes - change.freed.bytes,
                "allocated": _size(change.allocated),
                "freed": _size(change.freed),
                "grown_stacks": _grown(change.net),
                "stacks": [
                    _stack(stack, size, change.lifetimes.get(stack, {}))
                    for stack, size in largest(change.net, self._most)
                ],
                "released": _by_point("allocated_before", change.released),
            }


def _pair(memory: str, source: str, before: Seen, after: Seen) -> dict[str, Any]:
    return {
        "step": after.step,
        "memory": memory,
        "source": source,
        "since": before.identity,
        "until": after.identity,
    }


def _stack(stack: Stack, size: Size, lifetimes: Mapping[int | None, Size] | None) -> dict[str, Any]:
    return {
        **_size(size),
        "frames": told(stack),
        "lifetimes": None if lifetimes is None else _by_point("freed_before", lifetimes),
    }


def _by_point(key: str, sizes: Mapping[int | None, Size]) -> list[dict[str, Any]]:
    """By point, the one that is not known, or yet to come, last."""
    known = sorted(sizes.items(), key=lambda item: (item[0] is None, item[0] or 0))
    return [{key: order, **_size(size)} for order, size in known]


def _size(size: Size) -> dict[str, Any]:
    return {"bytes": size.bytes, "count": size.count}


def _grown(net: Mapping[Stack, Size]) -> int:
    return sum(size.bytes > 0 for size in net.values())
