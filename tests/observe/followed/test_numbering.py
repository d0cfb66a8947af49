"""Numbering batches without a mark on them, and holding on to them without keeping them alive."""

from __future__ import annotations

import copy
import gc
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.followed.batch import expand, find
from aorta_collectors.observe.followed.numbering import BatchNumbers, WeakTable, weaken


class Data:
    """A batch that a weak reference can be made of."""

    def __init__(self, x: Any) -> None:
        self.x = x


def test_numbers_go_up_and_are_found_again() -> None:
    numbers = BatchNumbers()
    batches = [Data(torch.ones(1)) for _ in range(3)]
    assert [numbers.number(batch, (), first=True) for batch in batches] == [1, 2, 3]
    assert [numbers.number(batch, (), first=False) for batch in batches] == [1, 2, 3]
    assert numbers.number(Data(torch.ones(1)), (), first=False) is None
    assert numbers.seen == 3


def test_a_batch_that_was_built_anew_is_known_by_its_tensors_or_its_context() -> None:
    numbers = BatchNumbers()
    tensors, context = [torch.ones(1), torch.ones(1)], Data(None)
    assert numbers.number(Data(1), tensors, first=True, context=context) == 1
    rebuilt = Data(2)
    assert numbers.number(rebuilt, [tensors[0], torch.ones(1)], first=False) == 1
    assert numbers.number(rebuilt, (), first=False) == 1  # and by itself from then on
    assert numbers.number(Data(3), [torch.ones(1)], first=False, context=context) == 1
    assert numbers.number(Data(4), [torch.ones(1)], first=False, context=Data(None)) is None


def test_a_tensor_that_batches_share_tells_nothing() -> None:
    numbers = BatchNumbers()
    mask, ones = torch.ones(1), [torch.ones(1) for _ in range(3)]
    for expected, own in enumerate(ones, 1):
        assert numbers.number({}, [mask, own], first=True) == expected
    for expected, own in enumerate(ones, 1):
        assert numbers.number({}, [own, mask], first=True) == expected
        assert numbers.number({}, [own], first=False) == expected
    assert numbers.number({}, [mask], first=False) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=60))
def test_a_weak_table_holds_what_lives_and_never_mistakes_an_id(actions: list[tuple[bool, int]]) -> None:
    table: WeakTable[int] = WeakTable(most=100)
    living: dict[int, tuple[Data, int]] = {}
    for count, (make, place) in enumerate(actions):
        if make:
            living[place] = Data(None), count
            table.put(living[place][0], count)
        else:
            living.pop(place, None)
        assert table.get(Data(None)) is None  # likely to get the id of one that has just gone
        assert len(table) == len(living)
        assert all(table.get(thing) == value for thing, value in living.values())


def test_a_weak_table_is_bounded() -> None:
    table: WeakTable[int] = WeakTable(most=3)
    things = [Data(None) for _ in range(5)]
    for place, thing in enumerate(things):
        assert table.put(thing, place)
    assert [table.get(thing) for thing in things] == [None, None, 2, 3, 4]
    assert not table.put({}, 1)


def test_weakly_held_batches_come_back_while_they_live() -> None:
    thing, kept = Data(torch.ones(1)), torch.ones(1)
    assert weaken(thing)() is thing
    for batch in ({"x": kept, "y": [kept, 1]}, (kept, {"z": kept})):
        held = weaken(copy.copy(batch))
        (found,) = expand("batch", held())
        assert found.tensor is kept
    gone = weaken({"x": torch.ones(1), "y": kept})
    gc.collect()
    assert find(gone(), "x") == []
    assert find(gone(), "y")[0].tensor is kept
    assert weaken(3)() is None
