"""The machine that a process runs on, as far as it can be seen without waking a device up."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

# Where the drivers of NVIDIA and of AMD say which version they are.
_DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")


def machine() -> dict[str, Any]:
    """Processors, threads, drivers, and the devices that this process has in use."""
    import torch

    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cpu_capability": _cpu_capability(),
        "threads": torch.get_num_threads(),
        "threads_between_operations": torch.get_num_interop_threads(),
        "driver": _driver(),
        "devices": _devices(),
    }


def _cpu_model() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return None


def _cpu_capability() -> str | None:
    """Which instructions torch computes with, such as AVX2."""
    import torch

    with suppress(Exception):
        return str(torch.backends.cpu.get_cpu_capability())
    return None


def _driver() -> str | None:
    for place in _DRIVERS:
        with suppress(OSError):
            found = _VERSION.search(place.read_text(encoding="utf-8", errors="replace"))
            if found:
                return found.group()
    return None


def _devices() -> list[dict[str, Any]]:
    """Asked of a process that has not used them yet, they would be initialized."""
    import torch

    found: list[dict[str, Any]] = []
    cuda: Any = torch.cuda
    if not cuda.is_initialized():
        return found
    with suppress(Exception):
        for index in range(cuda.device_count()):
            device = cuda.get_device_properties(index)
            told = {"device": f"cuda:{index}", "name": device.name, "memory_bytes": device.total_memory}
            told |= {"capability": f"{device.major}.{device.minor}"}
            told |= {"architecture": getattr(device, "gcnArchName", None), "processors": device.multi_processor_count}
            found.append(told)
    return found
