"""What torch's allocator on CUDA and ROCm devices can be asked, as far as the installed torch knows of it.

Nothing here waits for a device, takes memory of one, or sets CUDA up where the program has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

#: A snapshot's part, as torch.cuda.memory documents it.
Part = Mapping[str, Any]


class Allocator(Protocol):
    """What is asked of one. An allocator of the program's own, or another backend's, may raise RuntimeError."""

    def devices(self) -> int:
        """How many devices there are; 0 in a program that has not used one yet."""

    def stats(self, index: int) -> Part:
        """As torch.cuda.memory_stats_as_nested_dict() returns them."""

    def segments(self) -> Sequence[Part]:
        """As torch.cuda.memory_snapshot() lists them, of all devices."""

    def is_recorded(self) -> bool:
        """Whether the application has it record its allocations."""

    def traces(self) -> Sequence[Sequence[Part]]:
        """That record by device, oldest first."""


class TorchAllocator:
    """torch.cuda's; ROCm builds call it the same."""

    def __init__(self) -> None:
        # Some of its functions have no types.
        self._cuda: Any = torch.cuda

    def devices(self) -> int:
        return int(self._cuda.device_count()) if self._cuda.is_initialized() else 0

    def stats(self, index: int) -> Part:
        found: Part = self._cuda.memory_stats_as_nested_dict(index)
        return found

    def segments(self) -> Sequence[Part]:
        try:
            found: Sequence[Part] = self._cuda.memory_snapshot(include_traces=False)
        except TypeError:  # an older torch, which cannot leave the record of allocations out
            found = self._cuda.memory_snapshot()
        return found

    def is_recorded(self) -> bool:
        ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        return bool(ask()) if ask is not None else False

    def traces(self) -> Sequence[Sequence[Part]]:
        found: Sequence[Sequence[Part]] = self._cuda.memory._snapshot()["device_traces"]
        return found
