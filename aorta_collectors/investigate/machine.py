"""The machine and its software, as an investigation records them: whatever of it can change a value or a duration.

Where there may be a device, torch is asked for it in a process of its own: importing it takes seconds, and asking takes
hold of the device. All of it stays the same while nobody changes anything, so that two records can be compared.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_DEVICES = """
import json
found = {"devices": []}
try:
    import torch

    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found["devices"].append(
            {
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "arch": getattr(properties, "gcnArchName", f"sm_{properties.major}{properties.minor}"),
                "uuid": str(getattr(properties, "uuid", "")),
            }
        )
    found["cudnn"] = torch.backends.cudnn.version()
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(found))
"""
# Where none of these is there, no build of torch has a device.
_DEVICE_FILES = ("nvidia[0-9]*", "nvidiactl", "kfd", "dxg")
_TORCH_TIMEOUT_S = 300
_DRIVERS = {"nvidia": "/proc/driver/nvidia/version", "amdgpu": "/sys/module/amdgpu/version"}
# Variables that choose devices, kernels, numbers of threads, allocators or communication, or that Python itself reads.
_PREFIXES = (
    "CUBLAS",
    "CUDA",
    "CUDNN",
    "FBGEMM",
    "GLOO",
    "GPU_",
    "HIP",
    "HSA",
    "INDUCTOR",
    "KMP",
    "MALLOC",
    "MIOPEN",
    "MKL",
    "NCCL",
    "NVIDIA",
    "OMP",
    "OPENBLAS",
    "PYTHON",
    "PYTORCH",
    "RCCL",
    "ROCBLAS",
    "ROCR",
    "TENSILE",
    "TORCH",
    "TRITON",
)
_NAMES = ("ATEN_CPU_CAPABILITY", "LD_LIBRARY_PATH", "LD_PRELOAD", "DISABLE_TF32")


def environment_now() -> dict[str, Any]:
    """What metadata.json keeps as environment."""
    return {
        "machine": {
            "host": socket.gethostname(),
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "libc": " ".join(platform.libc_ver()),
            "cpu": _cpu_model(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "drivers": {name: text for name, path in _DRIVERS.items() if (text := _first_line(path))},
        },
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "torch": _torch(),
        "packages": dict(sorted(_packages())),
        "variables": {name: value for name, value in sorted(os.environ.items()) if _matters(name)},
    }


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """What differs between two records, one line for each place."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        lines = []
        for name in sorted({*before, *now}):
            lines += differences(before.get(name), now.get(name), f"{place} {name}" if place else str(name))
        return lines
    return [] if before == now else [f"{place}: {_shown(before)} before, {_shown(now)} now"]


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value)


def _torch() -> dict[str, Any]:
    """The build, from a file of torch's that imports nothing of it, and the devices that it finds."""
    try:
        spec = importlib.util.find_spec("torch")
        assert spec is not None
        assert spec.origin is not None
        build = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except Exception as error:  # whatever a broken installation raises
        return {"error": f"{type(error).__name__}: torch is not there, or does not say which one it is"}
    found: dict[str, Any] = {
        "version": build.get("__version__"),
        "git": build.get("git_version"),
        "cuda": build.get("cuda"),
        "hip": build.get("hip"),
        "devices": [],
    }
    has_device = any(any(Path("/dev").glob(pattern)) for pattern in _DEVICE_FILES)
    return {**found, **_devices()} if has_device and (found["cuda"] or found["hip"]) else found


def _devices() -> dict[str, Any]:
    # -P is not there in Python 3.10, and "" in sys.path would let a file torch.py here take torch's place.
    code = "import sys; sys.path = [path for path in sys.path if path]" + _DEVICES
    try:
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S, check=False)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: torch could not be asked for its devices"}


def _packages() -> Iterator[tuple[str, str]]:
    from importlib.metadata import distributions

    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            yield name, distribution.version


def _matters(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _NAMES


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return ""
