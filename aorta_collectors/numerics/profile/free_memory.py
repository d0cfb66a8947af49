"""How much memory may still be taken, on a device or on the host: of a container, what its limit leaves."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_KIB = 1024
# (limit, used): of version 2, and of version 1, as a container sees its own group.
_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free_bytes(device: torch.device, meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Of "cuda" or "cpu"; None where it is not told.

    What a container uses for files that it has read counts as taken, which is less than there is, if not right.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = meminfo.read_text().splitlines()
        found += [int(line.split()[1]) * _KIB for line in lines if line.startswith("MemAvailable:")]
    for limit, used in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number, and no limit
            found.append(max(0, int((cgroup / limit).read_text()) - int((cgroup / used).read_text())))
    return min(found, default=None)
