"""The order of waits between the program's streams and ours, proved on streams that keep a queue and refuse misuse."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from aorta_collectors.observe.followed.side_stream import SideStream


class Event:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.position = stream, len(stream.queue)


class Stream:
    """A queue of work. `after` tells for each piece of work what is certain to be done before it."""

    def __init__(self, device: int, name: str) -> None:
        self.device, self.name = device, name
        self.queue: list[str] = []
        self.waits: list[tuple[int, Stream, int]] = []  # from here on, for that many pieces of work there

    def record_event(self) -> Event:
        return Event(self)

    def wait_event(self, event: Event) -> None:
        self.waits.append((len(self.queue), event.stream, event.position))

    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)
        self.wait_event(Event(other))

    def enqueue(self, work: str) -> None:
        self.queue.append(work)

    def before(self, work: str) -> set[str]:
        return self._before(self.queue.index(work))

    def _before(self, position: int) -> set[str]:
        done = set(self.queue[:position])
        for start, other, count in self.waits:
            if start <= position:
                done |= set(other.queue[:count])
                done |= other._before(count) if count else set()
        return done


class Streams:
    """Like torch.cuda, with two devices, on the CPU. Using a stream outside its device is refused, as CUDA does."""

    def __init__(self) -> None:
        self.default = [Stream(device, f"default{device}") for device in (0, 1)]
        self.made: list[Stream] = []
        self.capturing = False
        self._device = 0
        self._current = list(self.default)

    def current_device(self) -> int:
        return self._device

    def current_stream(self) -> Stream:
        return self._current[self._device]

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Stream(self) -> Stream:
        self.made.append(Stream(self._device, f"side{self._device}"))
        return self.made[-1]

    @contextlib.contextmanager
    def device(self, index: int) -> Iterator[None]:
        earlier, self._device = self._device, index
        try:
            yield
        finally:
            self._device = earlier

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        assert stream.device == self._device, "a stream of another device"
        earlier, self._current[self._device] = self._current[self._device], stream
        try:
            yield
        finally:
            self._current[self._device] = earlier


class Placed(Tensor):
    """A tensor that believes it is on a device, and notes which streams the allocator was told of."""

    place: torch.device
    streams: list[Any]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place

    def record_stream(self, stream: Any) -> None:
        self.streams.append(stream)


def placed(device: str = "cuda:0") -> Placed:
    tensor = torch.ones(2).as_subclass(Placed)
    tensor.place, tensor.streams = torch.device(device), []
    return tensor


def test_the_read_follows_the_programs_work_and_nothing_of_the_program_waits() -> None:
    streams = Streams()
    side, tensor = SideStream(streams), placed()
    main = streams.default[0]
    main.enqueue("copy")
    with side.reading(tensor):
        streams.current_stream().enqueue("read")
    main.enqueue("compute")
    assert streams.current_stream() is main
    (ours,) = streams.made
    assert ours.before("read") == {"copy"}
    assert main.before("compute") == {"copy"}
    assert tensor.streams == [ours]
    side.join()
    main.enqueue("drain")
    assert main.before("drain") == {"copy", "read", "compute"}
    assert (side.active, side.count) == (True, 1)


def test_the_read_follows_the_stage_alone_where_its_stream_is_known() -> None:
    streams = Streams()
    side, copying = SideStream(streams), Stream(0, "memcpy")
    streams.default[0].enqueue("compute")
    copying.enqueue("copy")
    with side.after(copying), side.reading(placed()):
        streams.current_stream().enqueue("read")
    assert streams.made[0].before("read") == {"copy"}
    with side.reading(placed()):  # `after` is over
        streams.current_stream().enqueue("later")
    assert "compute" in streams.made[0].before("later")
    assert copying.waits == streams.default[0].waits == []


def test_without_a_stream_of_our_own_the_stage_reads_itself() -> None:
    streams = Streams()
    inline, copying, tensor = SideStream(streams, own=False), Stream(0, "memcpy"), placed()
    copying.enqueue("copy")
    with inline.after(copying), inline.reading(tensor):
        streams.current_stream().enqueue("read")
    assert copying.queue == ["copy", "read"]
    assert tensor.streams == [copying]
    streams.default[0].enqueue("compute")
    inline.join()
    streams.default[0].enqueue("drain")
    assert streams.default[0].before("compute") == set()
    assert "read" in streams.default[0].before("drain")
    with inline.reading(placed()):  # no stage: the current stream
        streams.current_stream().enqueue("in place")
    assert streams.default[0].queue[-1] == "in place"
    assert (inline.active, inline.count, streams.made) == (False, 0, [])


def test_each_device_has_its_own_stream_and_is_joined_on_its_own() -> None:
    streams = Streams()
    side = SideStream(streams)
    for device in ("cuda:1", "cuda:0", "cuda:1", "cuda"):
        with side.reading(placed(device)):
            streams.current_stream().enqueue(f"read on {device}")
    assert [stream.name for stream in streams.made] == ["side1", "side0"]
    assert streams.current_device() == 0
    side.join()
    for stream in streams.default:
        stream.enqueue("drain")
    assert streams.default[0].before("drain") == {"read on cuda:0", "read on cuda"}
    assert streams.default[1].before("drain") == {"read on cuda:1"}
    assert side.count == 4


def test_a_join_waits_once_for_what_is_new() -> None:
    streams = Streams()
    side = SideStream(streams)
    with side.reading(placed()):
        pass
    side.join()
    side.join()
    assert len(streams.default[0].waits) == 1


def test_a_read_that_fails_leaves_the_streams_in_order() -> None:
    streams = Streams()
    side, tensor = SideStream(streams), placed()
    with pytest.raises(ValueError, match="boom"), side.reading(tensor):
        raise ValueError("boom")
    assert streams.current_stream() is streams.default[0]
    assert tensor.streams == streams.made  # something may have been queued already
    assert side.count == 0


def test_host_memory_is_read_in_place_and_said_once() -> None:
    lines: list[str] = []
    side = SideStream(log=lines.append)
    for _ in range(2):
        with side.reading(torch.ones(1)):
            pass
    side.join()
    assert (side.active, side.count) == (False, 0)
    assert len(lines) == 1
    assert "cpu memory" in lines[0]


def test_where_no_stream_can_be_made_the_read_happens_all_the_same() -> None:
    class Broken(Streams):
        def Stream(self) -> Stream:
            raise RuntimeError("no streams left")

    lines: list[str] = []
    streams = Broken()
    side = SideStream(streams, log=lines.append)
    for _ in range(2):
        with side.reading(placed()):
            streams.current_stream().enqueue("read")
    assert streams.default[0].queue == ["read", "read"]
    assert (side.active, side.count) == (False, 0)
    assert len(lines) == 1
    assert "no streams left" in lines[0]


def test_a_graph_that_is_being_captured_is_not_forked() -> None:
    streams = Streams()
    side = SideStream(streams)
    streams.capturing = True
    with side.reading(placed()):
        streams.current_stream().enqueue("read")
    assert streams.default[0].queue == ["read"]
    assert streams.made == []
