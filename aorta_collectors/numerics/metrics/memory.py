"""Memory that a model's process uses: of its device, or where it has none, of the host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import torch

_STATM = Path("/proc/self/statm")
_STATUS = Path("/proc/self/status")
_MEMINFO = Path("/proc/meminfo")
_KIB = 1024


class Memory(NamedTuple):
    """Bytes; None is what cannot be told."""

    used: int | None = None
    total: int | None = None


class MemoryMeter:
    """Reads memory, without waiting for a device.

    Args:
        device: Where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._total = self._read_total()

    def read(self) -> Memory:
        """What is allocated on the device, or resident in host memory, and what there is."""
        try:
            if self.device.type == "cuda":
                return Memory(torch.cuda.memory_allocated(self.device), self._total)
            if self.device.type == "cpu":
                with open(_STATM, "rb", buffering=0) as statm:  # at each step: no need of a decoder
                    return Memory(int(statm.read().split()[1]) * self._page_bytes, self._total)
        except (OSError, ValueError, IndexError, RuntimeError):
            pass  # no /proc, or a device that is gone
        return Memory(None, self._total)

    def peak(self) -> int | None:
        """The most that the process has used at any time."""
        try:
            if self.device.type == "cuda":
                return int(torch.cuda.max_memory_allocated(self.device))
            return _kib(_STATUS, "VmHWM:") if self.device.type == "cpu" else None
        except (OSError, ValueError, IndexError, RuntimeError):
            return None

    def _read_total(self) -> int | None:
        try:
            if self.device.type == "cuda":
                return int(torch.cuda.get_device_properties(self.device).total_memory)
            return _kib(_MEMINFO, "MemTotal:") if self.device.type == "cpu" else None
        except (OSError, ValueError, IndexError, RuntimeError):
            return None


def _kib(file: Path, name: str) -> int | None:
    """Bytes that a line of /proc tells in kibibytes."""
    for line in file.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * _KIB
    return None
