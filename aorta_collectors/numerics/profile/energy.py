"""Energy from the first step to the last: of the processors by RAPL, or of the device that the model is on.

RAPL is Intel's and AMD's running sum of microjoules, in files that most machines let only root read. NVML and ROCm SMI
keep such a sum for each device. All of them are of the whole machine or device, whoever uses it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import Part, StepTrace

RAPL_ROOT = Path("/sys/class/powercap")
# The sum of RAPL begins anew after a quarter of a megajoule or less: minutes of a large machine.
_SECONDS_BETWEEN = 10.0


class Rapl:
    """The running sums of all packages, and of memory where that has one of its own.

    Args:
        root: Of the files.

    Raises:
        OSError: There is none, or it cannot be read; says which and why.
    """

    def __init__(self, root: Path) -> None:
        self._zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if _counts(zone)]
        if not self._zones:
            raise OSError(f"no package has a counter in {root}")
        self._joules = 0.0
        self._ranges = [_number(zone / "max_energy_range_uj") for zone in self._zones]
        self._last = self._read()

    def joules(self) -> float:
        """Since it was made; to be asked before a sum begins anew for the second time."""
        now = self._read()
        for before, after, most in zip(self._last, now, self._ranges, strict=True):
            self._joules += (after - before if after >= before else after - before + most) * 1e-6
        self._last = now
        return self._joules

    def _read(self) -> list[int]:
        return [_number(zone / "energy_uj") for zone in self._zones]


def _counts(zone: Path) -> bool:
    """Whether its energy is in no other zone's: "psys" and the cores of a package are in, or hold, that of packages."""
    name = (zone / "name").read_text().strip()
    return name.startswith("package") or name == "dram"


def _number(path: Path) -> int:
    return int(path.read_text())


class Nvml:
    """Of an NVIDIA device, through the package nvidia-ml-py.

    Raises:
        ImportError: It is not installed.
        Exception: The driver does not tell; its message says why.
    """

    def __init__(self, device: torch.device) -> None:
        pynvml: Any = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        handle = _handler("_get_pynvml_handler", device)
        self._millijoules: Callable[[], int] = lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        self._first = self._millijoules()

    def joules(self) -> float:
        return float(self._millijoules() - self._first) * 1e-3


class RocmSmi:
    """Of an AMD device, through the package amdsmi.

    Raises:
        ImportError: It is not installed.
        Exception: The driver does not tell; its message says why.
    """

    def __init__(self, device: torch.device) -> None:
        amdsmi: Any = importlib.import_module("amdsmi")
        handle = _handler("_get_amdsmi_handler", device)

        def read() -> float:
            told = amdsmi.amdsmi_get_energy_count(handle)
            counted = told.get("energy_accumulator", told.get("power"))
            return float(counted * told["counter_resolution"] * 1e-6)

        self._read = read
        self._first = read()

    def joules(self) -> float:
        return self._read() - self._first


def _handler(name: str, device: torch.device) -> Any:
    """torch's own, since devices may be hidden from the program, or numbered otherwise than the driver does."""
    return getattr(torch.cuda, name)(device)


class Energy(Part):
    """
    Args:
        rapl_root: Where the files of RAPL are.
    """

    def __init__(self, rapl_root: Path = RAPL_ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        self._rapl_root = rapl_root
        self._clock = clock
        self._meter: Rapl | Nvml | RocmSmi | None = None
        self._has_looked = False
        self._source: str | None = None
        self._joules: float | None = None
        self._read_at = 0.0
        self._unavailable: list[str] = []

    def wants(self, brick: Brick) -> bool:
        return brick.is_root

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        if self._has_looked:
            return
        self._has_looked = True
        module = brick.module()
        parameter = next(module.parameters(), None) if module is not None else None
        self._look(parameter.device if parameter is not None else torch.device("cpu"))

    def _look(self, device: torch.device) -> None:
        """Take the meter of what the model runs on; say of each other why not."""
        is_amd = torch.version.hip is not None
        meters: list[tuple[str, Callable[[], Rapl | Nvml | RocmSmi], bool, str]] = [
            ("nvml", lambda: Nvml(device), device.type == "cuda" and not is_amd, "the model is on no NVIDIA device"),
            ("rocm_smi", lambda: RocmSmi(device), device.type == "cuda" and is_amd, "the model is on no AMD device"),
            ("rapl", lambda: Rapl(self._rapl_root), True, ""),
        ]
        for source, meter, applies, why in meters:
            if self._source is not None:
                self._unavailable.append(f"{source}: not needed, {self._source} tells of the device")
            elif not applies:
                self._unavailable.append(f"{source}: {why}")
            else:
                try:
                    self._meter, self._source = meter(), source
                except Exception as error:
                    self._unavailable.append(f"{source}: {type(error).__name__}: {error}")
        self._read_at = self._clock()

    def step_ended(self, trace: StepTrace) -> None:
        if self._meter is None or not (trace.is_last or self._clock() - self._read_at >= _SECONDS_BETWEEN):
            return
        self._read_at = self._clock()
        try:
            self._joules = self._meter.joules()
        except Exception as error:
            self._unavailable.append(f"{self._source}: {type(error).__name__}: {error}")
            self._meter = self._source = self._joules = None

    def fields(self) -> Mapping[str, Any]:
        told = {"joules": self._joules, "source": self._source, "unavailable": list(self._unavailable)}
        return {"energy": told}
