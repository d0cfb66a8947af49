"""TensorStats that are made on devices, and reach the host a step later: nothing waits for them within a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.device.arena import Arena, Row, Sending
from aorta_collectors.observe.device.rows import accelerator
from aorta_collectors.observe.device.streams import Device, apart
from aorta_collectors.observe.tensor_stats import Ends, TensorStats, decoded, stats_later


class _Queued(NamedTuple):
    """A row, or the float64 numbers of one themselves, on a device without streams."""

    numel: int
    place: Row | Tensor
    width: int


class _OnDevice:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.arena = Arena(device)


class StatsRows:
    """Statistics of one step on their devices. Safe to use from several threads.

    Args:
        device_of: Gives the streams and memory of a device, None for one without.
    """

    def __init__(self, device_of: Callable[[torch.device], Device | None] = accelerator) -> None:
        self._device_of = device_of
        self._devices: dict[torch.device, _OnDevice | None] = {}
        self._lock = threading.RLock()
        self._queued: list[_Queued] = []

    def queue(self, values: Tensor, ends: Ends | None) -> int | None:
        """Queue the reduction of `values` on the current stream of their device.

        Returns:
            The number of the row since the last seal; None while a CUDA graph is captured on that stream, whose replays
            could not be told apart.
        """
        with self._lock, apart():
            on = self._on(values.device)
            if on is None:
                if values.device.type == "mps":
                    values = values.cpu()  # has no float64, which the rows are of
                numbers = stats_later(values, ends)
                self._queued.append(_Queued(values.numel(), numbers, len(numbers)))
                return len(self._queued) - 1
            with on.device.entered():
                if on.device.is_capturing():
                    return None
                numbers = stats_later(values, ends)
                row = on.arena.take()[0]
                row.write(numbers)
            self._queued.append(_Queued(values.numel(), row, len(numbers)))
            return len(self._queued) - 1

    def seal(self) -> SealedStats | None:
        """End the step: its rows go to the host behind what has been queued. None where there are none."""
        with self._lock, apart():
            if not self._queued:
                return None
            queued, self._queued = self._queued, []
            sendings = []
            for on in self._devices.values():
                if on is not None:
                    with on.device.entered():
                        sending = on.arena.seal(now=not on.device.is_capturing())
                    if sending is not None:
                        sendings.append(sending)
            return SealedStats(queued, sendings, lambda: self.is_capturing)

    @property
    def is_capturing(self) -> bool:
        """Whether a CUDA graph is captured on the current stream of one of the devices: then none is asked."""
        for on in self._devices.values():
            if on is not None:
                with on.device.entered():
                    if on.device.is_capturing():
                        return True
        return False

    def _on(self, device: torch.device) -> _OnDevice | None:
        if device not in self._devices:
            streams = self._device_of(device)
            self._devices[device] = None if streams is None else _OnDevice(streams)
        return self._devices[device]


class SealedStats:
    """The rows of one step on their way to the host."""

    def __init__(self, queued: list[_Queued], sendings: list[Sending], is_capturing: Callable[[], bool]) -> None:
        self._queued = queued
        self._sendings = sendings
        self._is_capturing = is_capturing

    def is_ready(self) -> bool:
        """Whether `stats` would not wait. A device on which a graph is captured is not asked: then it is not."""
        with apart():
            if self._is_capturing():
                return False
            for sending in self._sendings:
                sending.send()
            return all(sending.is_ready() for sending in self._sendings)

    def stats(self) -> list[TensorStats]:
        """By number of the row. Waits for those that have not arrived."""
        with apart():
            arrived = {block: rows for sending in self._sendings for block, rows in sending.numbers().items()}
            found = []
            for numel, place, width in self._queued:
                if isinstance(place, Tensor):
                    numbers = place
                else:
                    numbers = arrived[place.block][place.index, :width].view(torch.float64)
                found.append(decoded(numel, numbers.tolist()))
            return found
