"""Snapshots of a device's allocator as torch.cuda.memory documents them: put together by hand, for machines without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MIB = 1 << 20


def frames(*lines: tuple[str, int, str]) -> list[dict[str, Any]]:
    """Innermost first."""
    return [{"filename": file, "line": line, "name": name} for file, line, name in lines]


def segment(
    *blocks: tuple[str, int], device: int = 0, pool: tuple[int, int] = (0, 0), stream: int = 0, **more: Any
) -> dict[str, Any]:
    """A segment of blocks, each a state and a size."""
    address = 0x7F0000000000
    told = []
    for state, size in blocks:
        requested = size - 100 if state != "inactive" else 0
        told.append({"address": address, "size": size, "requested_size": requested, "state": state, "frames": []})
        address += size
    return {
        "device": device,
        "address": 0x7F0000000000,
        "total_size": sum(size for _, size in blocks),
        "allocated_size": sum(size for state, size in blocks if state == "active_allocated"),
        "active_size": sum(size for state, size in blocks if state != "inactive"),
        "requested_size": sum(size - 100 for state, size in blocks if state != "inactive"),
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": pool,
        "is_expandable": False,
        "frames": [],
        "blocks": told,
        **more,
    }


def entry(action: str, time_us: int, address: int, size: int, stack: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A line of device_traces."""
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": list(stack)}


def stats(**current: int) -> dict[str, Any]:
    """What torch.cuda.memory_stats_as_nested_dict() returns, as far as it is read; peaks are twice as much."""

    def stat(value: int) -> dict[str, Any]:
        told = {"current": value, "peak": 2 * value, "allocated": 9 * value, "freed": 8 * value}
        return {"all": told, "small_pool": told, "large_pool": told}

    return {**{f"{name}_bytes": stat(value) for name, value in current.items()}, "num_alloc_retries": 3, "num_ooms": 0}


class Replayed:
    """An allocator that answers what was recorded of one: an exception is raised.

    Attributes:
        of_devices: Statistics by device.
        record: By device, what it has allocated; None where that is not recorded, and all is forgotten.
    """

    def __init__(
        self,
        of_devices: Sequence[dict[str, Any] | Exception],
        of_segments: Sequence[dict[str, Any]] | Exception,
        record: list[list[dict[str, Any]]] | None = None,
    ) -> None:
        self.of_devices = list(of_devices)
        self.record = record
        self._segments = of_segments

    def devices(self) -> int:
        return len(self.of_devices)

    def stats(self, index: int) -> dict[str, Any]:
        found = self.of_devices[index]
        if isinstance(found, Exception):
            raise found
        return found

    def segments(self) -> Sequence[dict[str, Any]]:
        if isinstance(self._segments, Exception):
            raise self._segments
        return self._segments

    def is_recorded(self) -> bool:
        return self.record is not None

    def traces(self) -> list[list[dict[str, Any]]]:
        return self.record or []
