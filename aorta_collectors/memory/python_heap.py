"""Who took memory of Python's own between two points, where the application has started tracemalloc.

That knows of what Python's objects take, and numpy's arrays; of torch's tensors in host memory it knows nothing. To
look means to copy all that is traced: seconds, where that is a million objects, as where tracing began before torch was
imported. So there is no look where the total, which costs nothing, has hardly changed.
"""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from aorta_collectors.memory.lifetimes import Size
from aorta_collectors.memory.stacks import Frame, Stack, is_ours, shortened

#: Bytes by which the total has to have changed for a look to be worth it.
LEAST = 1 << 16
_OWN = tracemalloc.__file__
# Of a sum that counts as well: more bytes than there are.
_ONE = 1 << 56

# Bytes and count by stack, innermost line first. Tuples that are made here, since what a class of ours would take is
# traced as if the program took it: the code that a dataclass or named tuple generates lies in no file.
_Line = tuple[str, int]
_Held = dict[tuple[_Line, ...], tuple[int, int]]


class HeapChange(NamedTuple):
    """From one look to the next, by stack."""

    net: dict[Stack, Size]
    total: int


class PythonHeap:
    """
    Attributes:
        bytes: All that is traced, without what looking at it takes; as of the last call of `read`.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._looked_at_bytes = self._total = 0
        self._before: _Held | None = None

    def read(self) -> HeapChange | None:
        """What has changed since the last look, where that is worth another one; None where it is not.

        The first call looks, and has nothing to compare with.
        """
        drift = tracemalloc.get_traced_memory()[0] - self._total
        if self._before is not None and abs(drift) < LEAST:
            self.bytes = self._looked_at_bytes + drift
            return None
        before, self._before = self._before, _held()
        total = self._looked_at_bytes
        self.bytes = self._looked_at_bytes = sum(size for size, _ in self._before.values())
        change = None if before is None else HeapChange(_net(before, self._before), self.bytes - total)
        del before
        # With what this look keeps, and without what the last one kept.
        self._total = tracemalloc.get_traced_memory()[0]
        return change

    def forget(self) -> None:
        """The application has stopped tracing; what it starts anew has nothing to be compared with."""
        self._before = None


def _held() -> _Held:
    """All that the application holds."""
    # Snapshot.statistics takes ten times as long: it makes an object of each stack and hashes it for each allocation.
    # The tuples behind it have the innermost line first, since Python 3.9. What we allocate is traced as well, which is
    # what takes longest: so one number holds both sums.
    traces: Any = tracemalloc.take_snapshot().traces
    sums: defaultdict[tuple[_Line, ...], int] = defaultdict(int)
    for _, size, lines, _ in traces._traces:
        sums[lines] += size + _ONE
    # The first line is that of the allocation.
    kept = (lines for lines in sums if lines[0][0] != _OWN and not is_ours(lines[0][0]))
    return {lines: (sums[lines] % _ONE, sums[lines] // _ONE) for lines in kept}


def _net(before: _Held, now: _Held) -> dict[Stack, Size]:
    net: dict[Stack, Size] = {}
    for lines in now.keys() | before.keys():
        later, earlier = now.get(lines, (0, 0)), before.get(lines, (0, 0))
        if later != earlier:
            stack = _stack(lines)
            net[stack] = net.get(stack, Size()) + Size(later[0] - earlier[0], later[1] - earlier[1])
    return net


def _stack(lines: Sequence[_Line]) -> Stack:
    return shortened([Frame(file, line, None) for file, line in lines])
