"""Pools out of segments: private ones told apart, and every byte counted once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.memory.pools import pools_of
from tests.memory.snapshots import MIB, segment

STATES = ("active_allocated", "active_awaiting_free", "active_pending_free", "inactive")


def test_pools_and_streams_of_each_device_are_told_apart() -> None:
    found = pools_of(
        [
            segment(("active_allocated", 2 * MIB), ("inactive", 18 * MIB)),
            segment(("active_allocated", MIB), ("active_pending_free", MIB)),
            segment(("active_allocated", MIB), stream=7),
            segment(("inactive", 4 * MIB), ("active_allocated", MIB), ("inactive", 15 * MIB), pool=(0, 1)),
            segment(("inactive", 2 * MIB), device=1, pool=(3, 0)),
        ]
    )
    assert list(found) == [0, 1]
    assert found[0] == [
        {
            "pool": "0,0",
            "kind": "default",
            "stream": 0,
            "segments": 2,
            "reserved": 22 * MIB,
            "allocated": 3 * MIB,
            "active": 4 * MIB,
            "requested": 4 * MIB - 300,
            "inactive": 18 * MIB,
            "largest_inactive": 18 * MIB,
        },
        {**_empty("0,0", 7, "default"), "reserved": MIB, "allocated": MIB, "active": MIB, "requested": MIB - 100},
        {
            **_empty("0,1", 0, "private"),
            "reserved": 20 * MIB,
            "allocated": MIB,
            "active": MIB,
            "requested": MIB - 100,
            "inactive": 19 * MIB,
            "largest_inactive": 15 * MIB,
        },
    ]
    retained = {**_empty("3,0", 0, "private"), "reserved": 2 * MIB, "inactive": 2 * MIB, "largest_inactive": 2 * MIB}
    assert found[1] == [retained]


def _empty(pool: str, stream: int, kind: str) -> dict[str, Any]:
    names = ("reserved", "allocated", "active", "requested", "inactive", "largest_inactive")
    return {"pool": pool, "kind": kind, "stream": stream, "segments": 1, **dict.fromkeys(names, 0)}


def test_what_segments_of_an_older_torch_do_not_say_is_the_default() -> None:
    old = segment(("active_allocated", MIB), ("inactive", MIB))
    del old["segment_pool_id"], old["requested_size"]
    (pool,) = pools_of([old])[0]
    assert (pool["pool"], pool["kind"], pool["requested"]) == ("0,0", "default", MIB - 100)


blocks = st.lists(st.tuples(st.sampled_from(STATES), st.integers(512, 1 << 30)), min_size=1, max_size=5)
segments = st.lists(
    st.builds(
        lambda blocks, device, pool, stream: segment(*blocks, device=device, pool=pool, stream=stream),
        blocks,
        st.integers(0, 2),
        st.sampled_from([(0, 0), (0, 1), (1, 0)]),
        st.integers(0, 1),
    ),
    max_size=12,
)


@given(segments)
def test_every_byte_of_a_device_is_in_one_pool(found: list[dict[str, Any]]) -> None:
    pools = pools_of(found)
    assert set(pools) == {each["device"] for each in found}
    for device, of_device in pools.items():
        mine = [each for each in found if each["device"] == device]
        for field, size in (("reserved", "total_size"), ("active", "active_size"), ("allocated", "allocated_size")):
            assert sum(pool[field] for pool in of_device) == sum(each[size] for each in mine)
        assert sum(pool["segments"] for pool in of_device) == len(mine)
        assert len({(pool["pool"], pool["stream"]) for pool in of_device}) == len(of_device)
        for pool in of_device:
            assert pool["reserved"] >= pool["active"] >= pool["allocated"] >= 0
            assert pool["inactive"] == pool["reserved"] - pool["active"] >= pool["largest_inactive"] >= 0
            assert (pool["kind"] == "default") == (pool["pool"] == "0,0")
