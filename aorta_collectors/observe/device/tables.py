"""Tables that tell a kernel of many small tensors, in device memory: made once and used as long as nothing moves."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from aorta_collectors.observe.device.launch import Plan, table_of
from aorta_collectors.observe.device.streams import Device

# Gradients lie where the allocator puts them, which in a steady loop is one of a few places.
_MOST = 64


class Tables:
    """The tables of one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._tables: dict[tuple[int, tuple[int, ...]], Tensor] = {}

    def address(self, plans: Sequence[Plan]) -> int:
        """Of a table for these, to be used on the current stream; it stays as it is until that is done."""
        numbers = table_of(plans)
        key = (self._device.stream(), numbers)
        table = self._tables.pop(key, None)
        if table is None:
            if len(self._tables) >= _MOST:
                del self._tables[next(iter(self._tables))]  # the one not used for the longest time
            table = self._device.memory(len(numbers))
            self._device.fill(table, numbers)
        self._tables[key] = table
        return table.data_ptr()
