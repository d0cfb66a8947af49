"""Copies of tensors in host memory: what the program does with a tensor afterwards is not seen in its copy.

A tensor in host memory is copied at once. From a CUDA or ROCm device the copy goes to pinned memory in the order of the
program's own stream, and nothing waits for it: it may be read once the `Arrival` that was sealed after it is there.
Other devices are waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

import torch
from torch import Tensor

from aorta_collectors.observe.device.rows import accelerator
from aorta_collectors.observe.device.streams import Device, Mark, apart

# Of the same size: torch copies these everywhere and without a word, which it does not all dtypes.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

DeviceOf = Callable[[torch.device], "Device | None"]


def bits_of(values: Tensor) -> Tensor:
    """The same memory as integers, where there are any of that size."""
    bits = _BITS.get(values.element_size())
    return values if bits is None else values.view(bits)


class Arrival:
    """The end of some copies: behind it all of them have arrived.

    Args:
        streams: On which they were queued.
    """

    def __init__(self, streams: Sequence[tuple[Device, int]]) -> None:
        self._unmarked = list(streams)
        self._marks: list[Mark] = []
        self._is_marked()

    def is_there(self) -> bool:
        """Whether the copies can be read without waiting. While a CUDA graph is captured no device is asked."""
        return self._is_marked() and all(mark.query() for mark in self._marks)

    def wait(self) -> bool:
        """Wait until the copies can be read; False while a CUDA graph is captured, since that must not be waited in."""
        if not self._is_marked():
            return False
        for mark in self._marks:
            if not mark.query():
                mark.synchronize()
        return True

    def _is_marked(self) -> bool:
        """Marks are made at the first moment at which they do not become part of a graph: later is no less behind."""
        while self._unmarked:
            device, stream = self._unmarked[-1]
            with device.entered():
                if device.is_capturing():
                    return False
                self._marks.append(device.mark(stream))
            self._unmarked.pop()
        return True


class HostCopies:
    """Copies tensors of all devices. Not to be used by several threads at once.

    Args:
        device_of: Gives the streams and memory of a device, None for one without.
        host: Types of devices whose memory is the host's.
    """

    def __init__(self, device_of: DeviceOf = accelerator, host: Container[str] = ("cpu",)) -> None:
        self._device_of = device_of
        self._on_host = host
        self._devices: dict[torch.device, Device | None] = {}
        self._streams: dict[tuple[torch.device, int], None] = {}

    def is_at_hand(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in host memory, so that it can be read where it is."""
        return tensor.device.type in self._on_host

    def copy(self, values: Tensor) -> Tensor | None:
        """A copy in host memory, without gaps, or on its way there; None while a CUDA graph is captured.

        Args:
            values: Strided, detached, of class Tensor, no conjugate view.
        """
        with apart():
            bits = bits_of(values.resolve_neg())
            copied = self._copied(bits)
            return None if copied is None else copied.view(values.dtype)

    def _copied(self, values: Tensor) -> Tensor | None:
        if self.is_at_hand(values):
            return torch.empty(values.shape, dtype=values.dtype, device="cpu").copy_(values)
        on = self._on(values.device)
        if on is None:
            return values.to("cpu", copy=True).contiguous()
        with on.entered():
            if on.is_capturing():
                return None
            size = values.numel() * values.element_size()
            target = on.host_memory(math.ceil(size / 8)).view(torch.uint8)
            copied = target[:size].view(values.dtype).view(values.shape)
            copied.copy_(values.contiguous(), non_blocking=True)
            self._streams[values.device, on.stream()] = None
        return copied

    def seal(self) -> Arrival:
        """What is behind all copies that were made since the last seal."""
        streams = [(on, stream) for device, stream in self._streams if (on := self._on(device)) is not None]
        self._streams = {}
        return Arrival(streams)

    def _on(self, device: torch.device) -> Device | None:
        if device not in self._devices:
            self._devices[device] = self._device_of(device)
        return self._devices[device]
