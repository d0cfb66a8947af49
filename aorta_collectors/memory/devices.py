"""The state of the allocator on each device that the process uses, as the lines of points have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aorta_collectors.memory.allocator import Allocator
from aorta_collectors.memory.pools import Pools, pools_of

RECORDED, STATE_ONLY = "recorded", "state only"


class Devices:
    """
    Args:
        pools: Whether pools are looked at.
        warn: Told once of what this allocator does not tell.
    """

    def __init__(self, allocator: Allocator, *, pools: bool, warn: Callable[[str], None]) -> None:
        self._allocator = allocator
        self._wants_pools = pools
        self._warn = warn
        self._used: list[int] = []
        self._silent: set[int] = set()

    def read(self, *, anew: bool) -> list[dict[str, Any]]:
        """As a line's `devices` has them.

        Args:
            anew: Whether to look for devices that were not used so far.
        """
        indexes: Sequence[int] = range(self._allocator.devices()) if anew else self._used
        told = {index: device_line(index, stats) for index in indexes if (stats := self._stats(index)) is not None}
        told = {index: line for index, line in told.items() if line["peak_reserved"] or line["peak_allocated"]}
        self._used = list(told)
        if told:
            history = RECORDED if self._allocator.is_recorded() else STATE_ONLY
            pools = self._pools()
            for index, line in told.items():
                line["history"] = history
                line["pools"] = None if pools is None else pools.get(index, [])
        return list(told.values())

    def _stats(self, index: int) -> Mapping[str, Any] | None:
        if index in self._silent:
            return None
        try:
            return self._allocator.stats(index)
        except RuntimeError as error:  # an allocator of the program's own
            self._silent.add(index)
            self._warn(f"the allocator of cuda:{index} tells nothing: {_first_line(error)}")
            return None

    def _pools(self) -> Pools | None:
        if not self._wants_pools:
            return None
        try:
            return pools_of(self._allocator.segments())
        except RuntimeError as error:  # such as that of cudaMallocAsync
            self._wants_pools = False
            self._warn(f"detail: pools: the allocator does not tell of its pools: {_first_line(error)}")
            return None


def device_line(index: int, stats: Mapping[str, Any]) -> dict[str, Any]:
    """A device's totals.

    Args:
        stats: As torch.cuda.memory_stats_as_nested_dict() returns them.
    """
    reserved, active = _bytes(stats, "reserved_bytes"), _bytes(stats, "active_bytes")
    return {
        "device": f"cuda:{index}",
        "allocated": _bytes(stats, "allocated_bytes"),
        "active": active,
        "reserved": reserved,
        "requested": _bytes(stats, "requested_bytes"),
        "inactive": max(reserved - active, 0),
        "peak_allocated": _bytes(stats, "allocated_bytes", "peak"),
        "peak_reserved": _bytes(stats, "reserved_bytes", "peak"),
        "retries": int(stats.get("num_alloc_retries", 0)),
        "history": STATE_ONLY,
        "pools": None,
    }


def _bytes(stats: Mapping[str, Any], name: str, which: str = "current") -> int:
    return int(stats.get(name, {}).get("all", {}).get(which, 0))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
