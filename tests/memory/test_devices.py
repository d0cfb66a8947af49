"""The state of allocators: what their statistics are called in a line; and no device is woken up to be asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aorta_collectors.memory.allocator import TorchAllocator
from aorta_collectors.memory.devices import Devices, device_line
from tests.memory.snapshots import MIB, Replayed, segment, stats

USED = stats(allocated=5 * MIB, active=6 * MIB, reserved=20 * MIB, requested=4 * MIB)


def test_statistics_become_a_line() -> None:
    assert device_line(2, USED) == {
        "device": "cuda:2",
        "allocated": 5 * MIB,
        "active": 6 * MIB,
        "reserved": 20 * MIB,
        "requested": 4 * MIB,
        "inactive": 14 * MIB,
        "peak_allocated": 10 * MIB,
        "peak_reserved": 40 * MIB,
        "retries": 3,
        "history": "state only",
        "pools": None,
    }


def test_what_an_allocator_does_not_count_is_zero() -> None:
    told = device_line(0, {"reserved_bytes": {}})
    assert (told["allocated"], told["requested"], told["retries"]) == (0, 0, 0)


def read(allocator: Replayed, *, pools: bool = True) -> tuple[list[dict[str, Any]], list[str]]:
    warnings: list[str] = []
    devices = Devices(allocator, pools=pools, warn=warnings.append)
    first = devices.read(anew=True)
    assert devices.read(anew=False) == first
    return first, warnings


class TestDevices:
    def test_those_that_the_process_has_used_are_told_with_their_pools(self) -> None:
        segments = [segment(("active_allocated", MIB), device=1), segment(("inactive", MIB), device=1, pool=(0, 1))]
        told, warnings = read(Replayed([stats(), USED], segments))
        assert [device["device"] for device in told] == ["cuda:1"]
        assert [pool["kind"] for pool in told[0]["pools"]] == ["default", "private"]
        assert warnings == []

    def test_pools_are_not_asked_for_where_totals_do(self) -> None:
        told, _ = read(Replayed([USED], [segment(("inactive", MIB))]), pools=False)
        assert told[0]["pools"] is None

    def test_one_that_is_used_later_is_found_when_it_is_looked_for(self) -> None:
        allocator = Replayed([USED, stats()], [])
        devices = Devices(allocator, pools=True, warn=print)
        assert len(devices.read(anew=True)) == 1
        allocator.of_devices[1] = USED
        assert [len(devices.read(anew=anew)) for anew in (False, True, False)] == [1, 2, 2]

    def test_an_allocator_that_does_not_tell_is_warned_of_once(self) -> None:
        told, warnings = read(Replayed([USED], RuntimeError("not supported\nC++ stack")))
        assert told[0]["pools"] is None
        assert warnings == ["detail: pools: the allocator does not tell of its pools: not supported"]
        told, warnings = read(Replayed([RuntimeError("pluggable")], []))
        assert (told, warnings) == ([], ["the allocator of cuda:0 tells nothing: pluggable"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which other tests may have used")
def test_a_program_without_a_device_is_not_given_one() -> None:
    cuda: Any = torch.cuda
    allocator = TorchAllocator()
    assert Devices(allocator, pools=True, warn=print).read(anew=True) == []
    assert not cuda.is_initialized()
    assert not allocator.is_recorded()
