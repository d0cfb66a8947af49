"""What the machine reaches: the roofline that bricks are held against, measured at the first step of a profile.

Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model for Multicore Architectures,
Communications of the ACM 52(4), 2009: work that needs F floating-point operations and B bytes takes at least
max(F / peak, B / bandwidth).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.profile.others import is_quiet
from aorta_collectors.numerics.profile.roofline_cache import RooflineCache
from aorta_collectors.numerics.profile.roofline_measure import Conditions, measured
from aorta_collectors.observe.modes import out_of_modes


@dataclass(frozen=True)
class Roofline:
    """Peaks of one device; the fields are those of `roofline` in schemas/numerics.summary.json.

    Attributes:
        busy_cores: That other processes kept busy while they were measured; 0 of a device that is not the host.
    """

    device: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    launch_us: float
    threads: int
    measured_at: str
    busy_cores: float = 0.0
    cached: bool = False

    def peak(self, dtype: str | None) -> float | None:
        """FLOPs a second of a matrix product; None of a dtype that was not measured."""
        return self.flops_per_s.get(dtype or "float32")

    def seconds(self, flops: float, dtype: str | None, num_bytes: float) -> float | None:
        """The least time for this work; None where it multiplies in a dtype that was not measured."""
        memory = num_bytes / self.bytes_per_s
        if not flops:
            return memory
        peak = self.peak(dtype)
        return None if peak is None else max(flops / peak, memory)

    def fields(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "flops_per_s": dict(self.flops_per_s),
            "bytes_per_s": self.bytes_per_s,
            "launch_us": self.launch_us,
            "threads": self.threads,
            "busy_cores": self.busy_cores,
            "measured_at": self.measured_at,
            "cached": self.cached,
        }


class Machine(Part):
    """Finds the roofline of the device that the model is on, when its first step begins.

    It is measured (2 to 3 seconds) where bricks are profiled, until the machine was quiet meanwhile, and what was
    measured before is read where steps alone are: seconds are too much for one number of theirs.

    Args:
        warn: Told why there is none.
        cache: Where it is kept between processes.
    """

    def __init__(self, config: Config, warn: Callable[[str], None], cache: Path | None = None) -> None:
        self._measures = config.profiles
        self._warn = warn
        self._cache = RooflineCache(cache)
        self._has_looked = self._has_measured = False
        self.roofline: Roofline | None = None

    def wants(self, brick: Brick) -> bool:
        return brick.is_root

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        if self._has_looked:
            return
        module = brick.module()
        parameter = next(module.parameters(), None) if module is not None else None
        conditions = Conditions.of(parameter.device if parameter is not None else torch.device("cpu"))
        if conditions.is_capturing:
            return  # of a CUDA graph: nothing may wait for the device; the next step will do
        self._has_looked = True
        if conditions.device.type not in ("cpu", "cuda"):
            self._warn(f"the roofline of a {conditions.device.type} device is not measured: efficiencies are not known")
            return
        dtypes = {parameter.dtype for parameter in module.parameters()} if module is not None else set()
        out_of_modes(self._find, conditions, conditions.dtypes(dtypes))
        found = self.roofline
        if self._measures and found is not None and not is_quiet(found.busy_cores):
            self._warn(
                f"the roofline was measured while other processes kept {found.busy_cores:.1f} of the machine's cores "
                "busy: the machine may reach more, and bricks may be less efficient than they look"
            )

    def step_ended(self, trace: StepTrace) -> None:
        if self._has_measured:
            self._has_measured = False
            trace.is_counted = True

    def _find(self, conditions: Conditions, dtypes: list[str]) -> None:
        known = self._cache.read(conditions.key)
        if self._measures and _wanted(dtypes, known):
            with self._cache.locked():
                before, known = known, self._cache.read(conditions.key)
                # Another rank may have measured meanwhile, on a machine that is as busy as it is.
                is_fresh = known is not None and known != before
                wanted = [dtype for dtype in _wanted(dtypes, known) if not (is_fresh and _has(known, dtype))]
                if wanted:
                    self._has_measured = True
                    fresh = measured(conditions, wanted, known)
                    if fresh is None:
                        self._warn("the roofline of this device could not be measured: efficiencies are not known")
                        return
                    self.roofline = Roofline(**fresh)
                    self._cache.write(conditions.key, fresh)
                    return
        if known is not None:
            self.roofline = replace(Roofline(**known), cached=True)

    def peak(self, dtype: str | None = None) -> float | None:
        """FLOPs a second that a matrix product reaches; None where it was not measured."""
        return self.roofline.peak(dtype) if self.roofline is not None else None

    def fields(self) -> Mapping[str, Any]:
        return {"roofline": self.roofline.fields() if self.roofline is not None else None}


def _wanted(dtypes: list[str], known: Mapping[str, Any] | None) -> list[str]:
    """Those to measure."""
    if known is not None and not is_quiet(known["busy_cores"]):
        return sorted({*dtypes, *known["flops_per_s"]})
    return [dtype for dtype in dtypes if not _has(known, dtype)]


def _has(known: Mapping[str, Any] | None, dtype: str) -> bool:
    return known is not None and dtype in known["flops_per_s"]
