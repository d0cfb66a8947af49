"""Lines of growth on a device, from points through a record of its allocations to the file."""

from __future__ import annotations

from pathlib import Path
from time import time_ns
from typing import Any, cast

import torch
from torch import nn

from tests.memory.left import Left, armed
from tests.memory.snapshots import MIB, Replayed, entry, frames, segment, stats

FORWARD = frames(("/x/model.py", 7, "forward"))


def test_a_session_tells_what_each_phase_took_of_a_device_and_how_long_it_was_kept(tmp_path: Path) -> None:
    """The program's own calls make the entries, at the time at which they happen, as an allocator would."""
    allocator = Replayed(
        [stats(allocated=MIB, active=MIB, reserved=20 * MIB, requested=MIB)],
        [segment(("active_allocated", MIB), ("inactive", 18 * MIB), pool=(0, 1)), segment(("inactive", MIB))],
        [[entry("snapshot", time_ns() // 1000, 0, 0)]],
    )
    assert allocator.record is not None
    record = allocator.record[0]

    def take(address: int, size: int) -> None:
        record.append(entry("alloc", time_ns() // 1000, address, size, FORWARD))

    def give(address: int, size: int) -> None:
        record.append(entry("free_requested", time_ns() // 1000, address, size))
        record.append(entry("free_completed", time_ns() // 1000, address, size))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            take(1, 300)
            take(len(record) + 10, 8 * MIB)
            y: Any = self.fc(x)
            y.register_hook(lambda grad: give(1, 300))
            return cast(torch.Tensor, y)

    model = Model()
    with armed(tmp_path, allocator, points=("before_forward", "after_forward", "after_backward")):
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
    left = Left(tmp_path)
    assert left.summary["history"] == {"host": "state only", "cuda:0": "recorded"}
    assert left.summary["devices"] == {"cuda:0": {"peak_allocated": 2 * MIB, "peak_reserved": 40 * MIB}}
    assert [pool["kind"] for pool in left.points[0]["devices"][0]["pools"]] == ["default", "private"]
    assert [(line["since"]["order"], line["until"]["order"]) for line in left.growth] == [
        (order, order + 1) for order in range(8)
    ]
    for line in left.growth:
        assert (line["memory"], line["source"], line["complete"]) == ("cuda:0", "torch.cuda", True)
        order = line["until"]["order"]
        if line["until"]["name"] == "after_forward":
            assert line["bytes"] == 8 * MIB + 300
            (stack,) = line["stacks"]
            assert (stack["bytes"], stack["count"]) == (8 * MIB + 300, 2)
            assert stack["frames"] == [{"file": "/x/model.py", "line": 7, "function": "forward"}]
            assert stack["lifetimes"] == [
                {"freed_before": order + 1, "bytes": 300, "count": 1},
                {"freed_before": None, "bytes": 8 * MIB, "count": 1},
            ]
            assert line["released"] == []
        elif line["until"]["name"] == "after_backward":
            assert (line["bytes"], line["stacks"]) == (-300, [])
            assert line["released"] == [{"allocated_before": order - 1, "bytes": 300, "count": 1}]
        else:
            assert (line["bytes"], line["allocated"], line["freed"]) == (0, _size(0), _size(0))


def test_where_a_program_stops_recording_only_the_state_is_told(tmp_path: Path) -> None:
    allocator = Replayed([stats(allocated=MIB, active=MIB, reserved=MIB, requested=MIB)], [], [[]])
    model = nn.Linear(4, 1)
    with armed(tmp_path, allocator, points=("before_forward",)):
        for step in range(6):
            if step in (0, 4):
                allocator.record = [[entry("snapshot", time_ns() // 1000, 0, 0)]]
            elif step == 2:
                allocator.record = None
            model(torch.ones(2, 4))
    left = Left(tmp_path)
    told = [line["devices"][0]["history"] for line in left.points]
    assert told == ["recorded", "recorded", "state only", "state only", "recorded", "recorded"]
    # What was recorded of the first step is gone by the time at which it would be read.
    assert [(line["since"]["order"], line["complete"]) for line in left.growth] == [(0, False), (4, True)]


def _size(count: int) -> dict[str, int]:
    return {"bytes": 0, "count": count}
