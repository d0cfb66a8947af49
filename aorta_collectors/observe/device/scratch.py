"""Areas where programs that share a tensor leave their parts: one a stream, since kernels on a stream take turns."""

from __future__ import annotations

from torch import Tensor

from aorta_collectors.observe.device.streams import Device

#: Most programs that share a tensor.
PROGRAMS = 1024
#: int64 numbers of a part; see the kernel.
PARTS = 15
#: int64 numbers before the parts. The first holds the number of programs that have arrived, 0 between kernels.
HEADER = 16

_MOST_STREAMS = 64  # a program may make new ones for ever


class Scratch:
    """Areas by stream of one device, or of one graph: the parts of a graph must be touched by nothing else."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._areas: dict[int, Tensor] = {}
        self._spare: list[Tensor] = []

    def prepare(self) -> Tensor:
        """Make an area in advance, for the first stream that asks, where nothing can be allocated later."""
        area = self._device.memory(HEADER + PARTS * PROGRAMS)
        self._spare.append(area)
        return area

    def address(self) -> int:
        """Of the area for the current stream."""
        stream = self._device.stream()
        area = self._areas.get(stream)
        if area is None:
            if len(self._areas) >= _MOST_STREAMS:
                # It was made on its stream, so the allocator gives it only to what comes later there.
                del self._areas[next(iter(self._areas))]
            area = self._spare.pop() if self._spare else self._device.memory(HEADER + PARTS * PROGRAMS)
            self._areas[stream] = area
        return area.data_ptr()
