"""Where a tensor is read at a pipeline's stage: on the stage's own stream, or on a side stream of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


class SideStream:
    """Reads on one stream of our own per device, made when a tensor there is first read.

    A read that sits on a stream of the program delays the copy or computation queued behind it, and so can hide the
    very race that is looked for. The side stream waits for the program's work; no stream of the program waits for it,
    except in `join`. Where no stream can be made, or the tensor is in host memory, the read happens in place.

    Args:
        streams: The device module: torch.cuda, or one like it.
        device_type: The devices it serves.
        own: Whether reads get a stream of our own. Otherwise they are queued on the stage's stream.
        log: Gets one line, the first time that a stream of our own can't be had.

    Attributes:
        active: Whether a stream of our own was made.
        count: Reads that ran on one.
    """

    def __init__(
        self,
        streams: Any = torch.cuda,
        *,
        device_type: str = "cuda",
        own: bool = True,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.active = False
        self.count = 0
        self._streams = streams
        self._device_type = device_type
        self._own = own
        self._log = log
        self._origin: Any = None
        self._made: dict[int, Any] = {}
        # The end of the last read on each stream.
        self._unjoined: dict[tuple[int, Any], Any] = {}

    @contextlib.contextmanager
    def after(self, origin: Any) -> Iterator[None]:
        """Reads inside follow the work queued on the stream `origin`; on the current stream where it is None."""
        self._origin = origin
        try:
            yield
        finally:
            self._origin = None

    @contextlib.contextmanager
    def reading(self, tensor: Tensor) -> Iterator[None]:
        """Queue what is done inside on the stream for `tensor`, after all that the program has queued so far."""
        device, stream = self._stream(tensor)
        if stream is None:
            yield
            return
        with self._streams.device(device):
            if self._own:
                stream.wait_stream(self._streams.current_stream() if self._origin is None else self._origin)
            try:
                with self._streams.stream(stream):
                    yield
            finally:
                # The allocator must not hand the memory out again before the read is done.
                tensor.record_stream(stream)
                self._unjoined[device, stream] = stream.record_event()
        self.count += self._own

    def join(self) -> None:
        """Make each device's current stream wait for the reads so far, so that their results can be used there."""
        while self._unjoined:
            (device, _), event = self._unjoined.popitem()
            with self._streams.device(device):
                self._streams.current_stream().wait_event(event)

    def _stream(self, tensor: Tensor) -> tuple[int, Any]:
        """(device index, stream to read on), the stream being None where the read has to happen in place."""
        if tensor.device.type != self._device_type:
            return self._in_place(f"the tensor is in {tensor.device.type} memory")
        try:
            index = tensor.device.index
            device: int = self._streams.current_device() if index is None else index
            if self._streams.is_current_stream_capturing():
                # A stream that a graph's capture runs into, and that doesn't run back, makes the capture fail.
                return self._in_place("the program is capturing a graph")
            if not self._own:
                return device, self._origin
            if device not in self._made:
                with self._streams.device(device):
                    self._made[device] = self._streams.Stream()
                self.active = True
        except Exception as error:
            return self._in_place(f"{type(error).__name__}: {error}")
        return device, self._made[device]

    def _in_place(self, reason: str) -> tuple[int, None]:
        if self._own and self._log is not None:
            log, self._log = self._log, None
            log(f"stage reads run on the program's own stream, which can hide a race: no side stream, since {reason}")
        return 0, None
