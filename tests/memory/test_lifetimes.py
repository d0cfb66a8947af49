"""Allocations between points, out of the record that torch's allocator keeps where the application asks for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.memory.lifetimes import Lifetimes, Moment, Size, largest
from aorta_collectors.memory.stacks import Frame
from tests.memory.snapshots import entry, frames

FORWARD = frames(("/x/model.py", 7, "forward"), ("/x/train.py", 3, "<module>"))
CACHE = frames(("/x/cache.py", 9, "keep"))
OF_FORWARD = (Frame("/x/model.py", 7, "forward"), Frame("/x/train.py", 3, "<module>"))
OF_CACHE = (Frame("/x/cache.py", 9, "keep"),)
#: before_forward, after_forward and after_backward of one step, then those of the next.
POINTS = [Moment(order, 100 * (order + 1)) for order in range(6)]


def freed(time_us: int, address: int, size: int) -> list[dict[str, Any]]:
    return [entry("free_requested", time_us, address, size), entry("free_completed", time_us, address, size)]


RECORD = [
    entry("snapshot", 99, 0, 0),
    entry("segment_alloc", 149, 0, 2 << 20),
    entry("alloc", 150, 1, 1000, FORWARD),
    entry("alloc", 160, 2, 500, CACHE),
    *freed(250, 1, 1000),
    entry("alloc", 450, 1, 1000, FORWARD),
    entry("alloc", 455, 3, 10, FORWARD),
    *freed(456, 3, 10),
    entry("alloc", 460, 4, 700, CACHE),
    *freed(470, 2, 500),
    *freed(550, 1, 1000),
]


class TestOneStep:
    def test_what_is_taken_and_given_back_belongs_to_the_points_around_it(self) -> None:
        forward, backward = Lifetimes().read(RECORD, POINTS[:3])
        assert (forward.since, forward.until, forward.complete) == (0, 1, True)
        assert (forward.allocated, forward.freed) == (Size(1500, 2), Size(0, 0))
        assert largest(forward.net, 10) == [(OF_FORWARD, Size(1000, 1)), (OF_CACHE, Size(500, 1))]
        assert largest(forward.net, 1) == [(OF_FORWARD, Size(1000, 1))]
        assert (backward.allocated, backward.freed) == (Size(0, 0), Size(1000, 1))
        assert largest(backward.net, 10) == []

    def test_a_lifetime_ends_at_a_point_or_not_yet(self) -> None:
        forward, backward = Lifetimes().read(RECORD, POINTS[:3])
        assert forward.lifetimes == {OF_FORWARD: {2: Size(1000, 1)}, OF_CACHE: {None: Size(500, 1)}}
        assert backward.lifetimes == {}
        assert (forward.released, backward.released) == ({}, {1: Size(1000, 1)})


def test_later_steps_go_on_where_the_last_one_ended() -> None:
    lifetimes = Lifetimes()
    lifetimes.read(RECORD, POINTS[:3])
    between, forward, backward = lifetimes.read(RECORD, POINTS[2:])
    assert (between.allocated, between.freed) == (Size(), Size())
    # What is taken and given back at once is no growth, and a cache that grows from 500 to 700 bytes grows by 200.
    assert forward.net == {OF_FORWARD: Size(1000, 1), OF_CACHE: Size(200, 0)}
    assert (forward.allocated, forward.freed) == (Size(1710, 3), Size(510, 2))
    assert forward.lifetimes[OF_FORWARD] == {4: Size(10, 1), 5: Size(1000, 1)}
    assert forward.released == {1: Size(500, 1)}
    assert backward.released == {4: Size(1000, 1)}


def test_a_record_that_has_lost_its_oldest_entries_says_so() -> None:
    forward, backward = Lifetimes().read(RECORD[4:], POINTS[:3])
    assert (forward.complete, backward.complete) == (False, False)
    assert backward.released == {None: Size(1000, 1)}
    lifetimes = Lifetimes()
    lifetimes.read(RECORD, POINTS[:3])
    between, forward, _ = lifetimes.read(RECORD[-4:], POINTS[2:])
    assert (between.complete, forward.complete) == (False, False)
    assert forward.released == {None: Size(500, 1)}


def test_only_the_requests_or_only_the_completions_may_be_recorded() -> None:
    for skipped in ("free_requested", "free_completed"):
        record = [each for each in RECORD if each["action"] != skipped]
        assert [change.freed for change in Lifetimes().read(record, POINTS)] == [
            change.freed for change in Lifetimes().read(RECORD, POINTS)
        ]


def test_of_stacks_with_frames_of_c_those_of_python_are_told() -> None:
    mixed = frames(("??", 0, "at::empty"), ("/x/torch.cpp", 4, "c10::alloc"), ("/x/model.py", 7, "forward"))
    (change,) = Lifetimes().read([entry("snapshot", 99, 0, 0), entry("alloc", 150, 1, 8, mixed)], POINTS[:2])
    assert change.net == {(Frame("/x/model.py", 7, "forward"),): Size(8, 1)}
    (change,) = Lifetimes().read([entry("snapshot", 99, 0, 0), entry("alloc", 150, 1, 8, mixed[:1])], POINTS[:2])
    assert change.net == {(Frame("??", 0, "at::empty"),): Size(8, 1)}


events = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 900), st.integers(1, 60), st.booleans()), max_size=30)


@given(events)
def test_growth_is_what_is_held_at_one_point_and_was_not_at_the_other(
    drawn: list[tuple[int, int, int, bool]],
) -> None:
    """Against the plain way: replaying the record up to each point, and subtracting."""
    now, held, record = 90, dict[int, tuple[int, int]](), []
    after: dict[int, Counter[int]] = {}

    def note_until(time_us: int) -> None:
        for moment in POINTS:
            if moment.order not in after and time_us > moment.time_us:
                after[moment.order] = Counter()
                for size, line in held.values():
                    after[moment.order][line] += size

    for address, size, passed, _ in drawn:
        now += passed
        note_until(now)
        if address in held:
            record += freed(now, address, held.pop(address)[0])
        else:
            held[address] = size, address % 3
            record.append(entry("alloc", now, address, size, frames(("m.py", address % 3, "f"))))
    note_until(10_000)
    lifetimes = Lifetimes()
    record.insert(0, entry("snapshot", 90, 0, 0))
    changes = lifetimes.read(record, POINTS[:3]) + lifetimes.read(record, POINTS[2:])
    for change in changes:
        before, later = after[change.since], after[change.until]
        expected = {line: later[line] - before[line] for line in range(3) if later[line] != before[line]}
        assert {stack[0].line: size.bytes for stack, size in change.net.items() if size.bytes} == expected
        assert change.allocated.bytes - change.freed.bytes == sum(later.values()) - sum(before.values())
        kept = [size for stack in change.lifetimes.values() for size in stack.values()]
        assert sum(size.bytes for size in kept) == change.allocated.bytes
