"""Clocks of several ranks: whatever happened before something else has less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.numerics.spans.causal import Meeting, causal_clocks

Events = list[tuple[int, Meeting | None]]


@st.composite
def runs(draw: st.DrawFn) -> list[Events]:
    """Ranks that meet in one order, each doing things of its own in between, with clocks that skip."""
    ranks = draw(st.integers(1, 4))
    processes: list[Events] = [[] for _ in range(ranks)]
    clocks = draw(st.lists(st.integers(0, 50), min_size=ranks, max_size=ranks))
    for sequence in range(draw(st.integers(0, 6))):
        group = draw(st.sampled_from(["world", "half"]))
        taking_part = range(ranks) if group == "world" else range(min(2, ranks))
        for rank in range(ranks):
            for _ in range(draw(st.integers(0, 3))):
                clocks[rank] += draw(st.integers(1, 5))
                processes[rank].append((clocks[rank], None))
        for rank in taking_part:
            clocks[rank] += draw(st.integers(1, 5))
            processes[rank].append((clocks[rank], (group, sequence)))
    return processes


@given(runs())
def test_what_is_ahead_of_a_collective_on_one_rank_is_before_what_follows_it_on_any(processes: list[Events]) -> None:
    clocks = causal_clocks(processes)
    assert [len(found) for found in clocks] == [len(events) for events in processes]
    for found, events in zip(clocks, processes, strict=True):
        assert found == sorted(set(found))
        assert all(causal >= own for causal, (own, _) in zip(found, events, strict=True))
    met: dict[Meeting, set[int]] = {}
    for found, events in zip(clocks, processes, strict=True):
        for causal, (_, where) in zip(found, events, strict=True):
            if where is not None:
                met.setdefault(where, set()).add(causal)
    assert all(len(causal) == 1 for causal in met.values())


def test_two_ranks() -> None:
    fast: Events = [(1, None), (2, ("0", 0)), (3, None)]
    slow: Events = [(1, None), (5, None), (9, ("0", 0)), (10, None)]
    assert causal_clocks([fast, slow]) == [[1, 9, 10], [1, 5, 9, 10]]


def test_a_rank_that_died_is_not_waited_for_beyond_what_it_met() -> None:
    lived: Events = [(1, ("0", 0)), (2, ("0", 1)), (3, None)]
    died: Events = [(7, ("0", 0))]
    assert causal_clocks([lived, died]) == [[7, 8, 9], [7]]


def test_orders_that_exclude_one_another_end() -> None:
    one: Events = [(1, ("a", 0)), (2, ("b", 0)), (3, None)]
    other: Events = [(1, ("b", 0)), (5, ("a", 0)), (6, None)]
    found = causal_clocks([one, other])
    assert [len(clocks) for clocks in found] == [3, 3]
    assert all(clocks == sorted(set(clocks)) for clocks in found)


def test_one_number_twice_on_a_rank_ends() -> None:
    found = causal_clocks([[(1, ("a", 0)), (2, ("a", 0))], [(4, ("a", 0))]])
    assert [len(clocks) for clocks in found] == [2, 1]


def test_nothing() -> None:
    assert causal_clocks([]) == []
    assert causal_clocks([[], [(3, None)]]) == [[], [3]]
