"""What is needed of a device: memory for rows, marks in its streams, and copies to the host that nothing waits for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor


class Mark(Protocol):
    """A place in a stream's queue."""

    def query(self) -> bool:
        """Whether the device has come past it. Waits for nothing; must not be called while a graph is captured."""

    def synchronize(self) -> None:
        """Wait, on the host, until it has."""


class Device(Protocol):
    """One device. "Current" is meant as of the calling thread."""

    def entered(self) -> AbstractContextManager[object]:
        """Make it the current device, where it isn't."""

    def stream(self) -> int:
        """The current stream, as a number that is its own while it exists."""

    def is_capturing(self) -> bool:
        """Whether what is queued on the current stream goes into a graph."""

    def memory(self, *shape: int) -> Tensor:
        """int64 zeros on the device, for the current stream alone and for copies."""

    def host_memory(self, *shape: int) -> Tensor:
        """int64 in host memory that the device can write to, contents undefined."""

    def fill(self, memory: Tensor, numbers: Sequence[int]) -> None:
        """Queue on the current stream that `memory` is filled with numbers from the host, without waiting."""

    def mark(self, stream: int) -> Mark:
        """A mark behind all that is queued so far on `stream`, which has been the current one before."""

    def send(self, copies: Sequence[tuple[Tensor, Tensor]], after: Sequence[Mark]) -> Mark:
        """Queue (target on the host, source) copies behind all of `after`, on no stream of the program's."""

    def send_here(self, copies: Sequence[tuple[Tensor, Tensor]]) -> Mark:
        """The same on the current stream, behind what is queued there."""

    def follow(self, mark: Mark) -> None:
        """Have what is queued on the current stream from now on wait, on the device, for `mark`."""

    def keep_for_copies(self, memory: Tensor) -> None:
        """See to it that `memory` is not used for anything else, once it is dropped, before its copies are done."""

    def keep_for_stream(self, memory: Tensor) -> None:
        """The same for all that the current stream does."""


def apart() -> AbstractContextManager[None]:
    """Run torch functions as if the program had no modes on: of functions, of dispatch, or inference mode."""
    if (
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch.is_inference_mode_enabled()
    ):
        return _without_modes()
    return contextlib.nullcontext()


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    # What is made in inference mode could not be written to outside of it.
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.inference_mode(False):
        yield


class CudaDevice:
    """A device of CUDA or ROCm. See Device."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._device = torch.device("cuda", index)
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._copies: torch.cuda.Stream | None = None

    def entered(self) -> AbstractContextManager[object]:
        return (
            contextlib.nullcontext() if torch.cuda.current_device() == self._index else torch.cuda.device(self._index)
        )

    def stream(self) -> int:
        handle = torch._C._cuda_getCurrentRawStream(self._index)
        if handle not in self._streams:
            self._streams[handle] = torch.cuda.current_stream(self._index)
        return handle

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def memory(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self._device)

    def host_memory(self, *shape: int) -> Tensor:
        # Torch hands pinned memory out again only when the copies into it are done.
        return torch.empty(shape, dtype=torch.int64, device="cpu", pin_memory=True)

    def fill(self, memory: Tensor, numbers: Sequence[int]) -> None:
        source = self.host_memory(len(numbers))
        source.copy_(torch.tensor(numbers, dtype=torch.int64, device="cpu"))
        memory.copy_(source, non_blocking=True)

    def mark(self, stream: int) -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._streams[stream])
        return event

    def send(self, copies: Sequence[tuple[Tensor, Tensor]], after: Sequence[Mark]) -> torch.cuda.Event:
        stream = self._copy_stream()
        event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for mark in after:
                assert isinstance(mark, torch.cuda.Event)
                stream.wait_event(mark)
            for target, source in copies:
                target.copy_(source, non_blocking=True)
            event.record(stream)
        return event

    def send_here(self, copies: Sequence[tuple[Tensor, Tensor]]) -> torch.cuda.Event:
        for target, source in copies:
            target.copy_(source, non_blocking=True)
        return self.mark(self.stream())

    def follow(self, mark: Mark) -> None:
        assert isinstance(mark, torch.cuda.Event)
        self._streams[self.stream()].wait_event(mark)

    def keep_for_copies(self, memory: Tensor) -> None:
        memory.record_stream(self._copy_stream())

    def keep_for_stream(self, memory: Tensor) -> None:
        memory.record_stream(self._streams[self.stream()])

    def _copy_stream(self) -> torch.cuda.Stream:
        if self._copies is None:
            self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return self._copies
