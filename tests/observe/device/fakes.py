"""A device whose memory is the host's and whose copies come late. It objects to what a real one would not bear.

It raises AssertionError where rows are written to while their copy is on its way, where the host waits inside of
`no_waiting`, and where the device is asked for anything while a graph is captured. Host memory that no copy has
arrived in yet holds numbers that make no sense.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

_NONSENSE = -(2**62) - 12345


class FakeMark:
    """Behind what had been queued on a stream; reached once the device has come so far."""

    def __init__(self, device: FakeDevice, streams: set[int]) -> None:
        self.device = device
        self.streams = streams
        self.reached = False
        self.copies: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def query(self) -> bool:
        assert not self.device.capturing, "an event is asked about while a graph is captured"
        return self.reached

    def synchronize(self) -> None:
        assert not self.device.capturing, "the host waits while a graph is captured"
        assert self.device.may_wait, "the host waits within a step"
        self.device.waits += 1
        self.device.advance(self)


class FakeDevice:
    """One device, see Device in observe/device/streams.

    Attributes:
        current: The current stream.
        waits: How often the host has waited.
        made: Memory by the stream on which it was made.
        follows: (stream, mark) of each `follow`.
        allocated_in_capture: Tensors made while a graph was captured.
    """

    def __init__(self) -> None:
        self.current = 0
        self.capturing = False
        self.may_wait = True
        self.waits = 0
        self.made: dict[int, int] = {}
        self.kept: set[int] = set()
        self.follows: list[tuple[int, FakeMark]] = []
        self.allocated_in_capture = 0
        self.entered_count = 0
        self._queue: list[FakeMark] = []

    # -- what DeviceRows uses

    def entered(self) -> contextlib.AbstractContextManager[object]:
        self.entered_count += 1
        return contextlib.nullcontext()

    def stream(self) -> int:
        return self.current

    def is_capturing(self) -> bool:
        return self.capturing

    def memory(self, *shape: int) -> torch.Tensor:
        self.allocated_in_capture += self.capturing
        memory = torch.zeros(shape, dtype=torch.int64)
        self.made[memory.data_ptr()] = self.current
        return memory

    def host_memory(self, *shape: int) -> torch.Tensor:
        assert not self.capturing, "host memory is pinned while a graph is captured"
        return torch.full(shape, _NONSENSE, dtype=torch.int64)

    def fill(self, memory: torch.Tensor, numbers: Sequence[int]) -> None:
        assert not self.capturing, "a table is made while a graph is captured"
        memory.copy_(torch.tensor(numbers))

    def mark(self, stream: int) -> FakeMark:
        assert not self.capturing, "a mark is made while a graph is captured"
        mark = FakeMark(self, {stream})
        self._queue.append(mark)
        return mark

    def send(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]], after: Sequence[FakeMark]) -> FakeMark:
        behind = set().union(*(mark.streams for mark in after))
        for _, source in copies:
            assert self.made[source.data_ptr()] in behind, "rows are sent before their stream has written them"
            assert source.data_ptr() in self.kept, "rows could be given away before they are copied"
        return self._copied(copies)

    def send_here(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> FakeMark:
        return self._copied(copies)

    def follow(self, mark: FakeMark) -> None:
        self.follows.append((self.current, mark))

    def keep_for_copies(self, memory: torch.Tensor) -> None:
        self.kept.add(memory.data_ptr())

    def keep_for_stream(self, memory: torch.Tensor) -> None:
        self.kept.add(memory.data_ptr())

    # -- what a test uses

    @contextlib.contextmanager
    def on(self, stream: int) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def no_waiting(self) -> Iterator[None]:
        self.may_wait = False
        try:
            yield
        finally:
            self.may_wait = True

    def advance(self, until: FakeMark | None = None) -> None:
        """Let the device do what is queued, up to and with `until`."""
        while self._queue:
            mark = self._queue.pop(0)
            for target, source, expected in mark.copies:
                assert torch.equal(source, expected), "rows were written to while their copy was on its way"
                target.copy_(source)
            mark.reached = True
            if mark is until:
                return

    def _copied(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> FakeMark:
        assert not self.capturing, "a copy is queued while a graph is captured"
        mark = FakeMark(self, {-1})
        mark.copies = [(target, source, source.clone()) for target, source in copies]
        self._queue.append(mark)
        return mark
