"""The pools and streams of a device's allocator, out of the segments that torch.cuda.memory_snapshot() lists.

A segment is memory that was taken from the device at once, and belongs to one pool and one stream; blocks are its
parts. Of pool (0, 0) anybody gets memory. Any other is private: what a CUDA graph was captured in, or a
torch.cuda.MemPool. Its free blocks are no leak: the addresses in a graph stay what they are, so that they are kept for
its replays, and for whoever captures into the same pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_DEFAULT = (0, 0)

Pools = dict[int, list[dict[str, Any]]]


def pools_of(segments: Iterable[Mapping[str, Any]]) -> Pools:
    """By device, by pool and stream: bytes, in the order of their ids.

    Args:
        segments: As torch.cuda.memory_snapshot() returns them.
    """
    found: dict[tuple[int, tuple[int, int], int], dict[str, Any]] = {}
    for segment in segments:
        first, second = segment.get("segment_pool_id", _DEFAULT)
        key = int(segment["device"]), (int(first), int(second)), int(segment["stream"])
        pool = found.get(key)
        if pool is None:
            pool = found[key] = _empty(key[1], key[2])
        pool["segments"] += 1
        pool["reserved"] += int(segment["total_size"])
        pool["allocated"] += int(segment["allocated_size"])
        pool["active"] += int(segment["active_size"])
        pool["requested"] += _requested(segment)
        free = (int(block["size"]) for block in segment["blocks"] if block["state"] == "inactive")
        pool["largest_inactive"] = max(pool["largest_inactive"], max(free, default=0))
    pools: Pools = {}
    for (device, _, _), pool in sorted(found.items(), key=lambda item: item[0]):
        pool["inactive"] = pool["reserved"] - pool["active"]
        pools.setdefault(device, []).append(pool)
    return pools


def _empty(pool: tuple[int, int], stream: int) -> dict[str, Any]:
    return {
        "pool": f"{pool[0]},{pool[1]}",
        "kind": "default" if pool == _DEFAULT else "private",
        "stream": stream,
        "segments": 0,
        "reserved": 0,
        "allocated": 0,
        "active": 0,
        "requested": 0,
        "inactive": 0,
        "largest_inactive": 0,
    }


def _requested(segment: Mapping[str, Any]) -> int:
    """Of the blocks in use; segments have their sum since torch 2.1."""
    if "requested_size" in segment:
        return int(segment["requested_size"])
    used = (block for block in segment["blocks"] if block["state"] != "inactive")
    return sum(int(block.get("requested_size", block["size"])) for block in used)
