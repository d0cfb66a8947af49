"""Finding named tensors in batches of many makes, and numbering batches without a mark on them."""

from __future__ import annotations

import collections
import functools
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torchrec import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from torchrec.distributed.types import LazyAwaitable

from aorta_collectors.observe.followed.batch import expand, find

X, Y = torch.ones(2), torch.zeros(3)


def names(batch: Any, name: str, **options: Any) -> list[str]:
    return [found.name for found in find(batch, name, **options)]


def only(batch: Any, name: str = "x") -> Tensor:
    (found,) = find(batch, name)
    assert found.name == name
    return found.tensor


@dataclass
class Data:
    x: Any
    other: Any = None


@dataclass
class Slotted:
    __slots__ = ("other", "x")
    x: Any
    other: Any


class Tuple(NamedTuple):
    other: Any
    x: Any


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Holder:
    def __init__(self, held: Any) -> None:
        self._held = held


class HasProperty:
    def __init__(self, x: Any) -> None:
        self._hidden = x

    @property
    def x(self) -> Any:
        return self._hidden


class Waiting(LazyAwaitable[Tensor]):
    """Fails the test as soon as anything waits for it."""

    def _wait_impl(self) -> Tensor:
        raise AssertionError("waited for")


@pytest.mark.parametrize(
    "batch",
    [
        {"x": X},
        collections.UserDict(x=X),
        collections.OrderedDict(other=Y, x=X),
        Data(X),
        Slotted(X, Y),
        Tuple(Y, X),
        Plain(X),
        HasProperty(X),
        (Y, {"x": X}),
        [Y, [Y, [Plain(X)]]],
        {"inputs": {"features": Data(X)}},
        Holder(Holder(Holder({"x": X}))),
        Data(None, other={"x": X}),  # an attribute that is None is no find
        Data("a name", other={"x": X}),  # nor is one that holds no tensor
        collections.deque([{"x": X}]),
    ],
)
def test_a_name_is_found_wherever_it_is(batch: Any) -> None:
    assert only(batch) is X


def test_the_batchs_own_member_comes_before_the_nearest_inside() -> None:
    assert only({"inner": {"x": Y}, "x": X}) is X
    assert only([{"deep": [{"x": Y}]}, {"x": X}]) is X


def test_dotted_names_walk() -> None:
    batch = {"dense": Data({"x": X}), "a.b": Y, "pairs": [(X, Y)]}
    assert only(batch, "dense.x.x") is X
    assert only(batch, "a.b") is Y
    assert only(batch, "pairs.0.1") is Y
    assert only([batch], "dense.x.x") is X
    assert names(batch, "dense.y") == names(batch, "pairs.0.2") == []


def test_an_element_of_a_tuple_is_named_by_its_place() -> None:
    assert only((Y, X), "1") is X


def test_all_of_equally_near_ones_are_taken() -> None:
    first, second = find([Data(X), Data(Y)], "x")
    assert (first.name, second.name) == ("x[0]", "x[1]")
    assert first.tensor is X
    assert second.tensor is Y
    assert only([Data(X), Data(X)]) is X


def test_what_lies_below_a_name_is_named_after_it() -> None:
    value = {"clicks": [X, Y], 3: (torch.ones(1), None), "data": Data(torch.ones(1)), (1, 2): torch.ones(1), "": "text"}
    assert names({"x": value}, "x") == ["x[clicks][0]", "x[clicks][1]", "x[3][0]", "x[data].x", "x[#3]"]


def test_a_tensor_is_taken_once_and_no_more_than_asked_for() -> None:
    assert names({"x": [X, X, {"again": X}, Y]}, "x") == ["x[0]", "x[3]"]
    assert names({"x": [torch.ones(1) for _ in range(100)]}, "x", most=7) == [f"x[{place}]" for place in range(7)]


def test_jagged_tensors_stand_for_their_values() -> None:
    kjt = KeyedJaggedTensor.from_lengths_sync(["a"], torch.tensor([1.0, 2.0]), torch.tensor([2]))
    jagged = JaggedTensor(X, lengths=torch.tensor([2]))
    keyed = KeyedTensor(["a"], [2], torch.ones(1, 2))
    found = find({"x": [kjt, jagged, keyed]}, "x")
    assert [one.name for one in found] == ["x[0]", "x[1]", "x[2]"]
    for one, source in zip(found, (kjt, jagged, keyed), strict=True):
        assert one.tensor is source.values()
        assert one.jagged is (None if source is keyed else source)
    assert kjt.offsets_or_none() is None


def test_nothing_that_would_wait_compute_or_raise_is_touched() -> None:
    class Tricky:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"asked for {name}")

    class Raises:
        @property
        def x(self) -> Tensor:
            raise RuntimeError("not yet")

    class Caches:
        @functools.cached_property
        def x(self) -> Tensor:
            raise AssertionError("computed")

        def method(self) -> None:
            raise AssertionError("called")

    class Answers:
        def __getattr__(self, name: str) -> Any:
            return X

    class Missing(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> Any:
            raise AssertionError(f"asked for {key}")

    waiting = Waiting()
    for hidden in (Tricky(), Raises(), Caches(), Answers(), Missing(), waiting, Future(), nn.Linear(2, 2), int, len):
        for batch in (hidden, [hidden], {"y": hidden}, Data(hidden), {"x": hidden}, {"x": [hidden]}):
            assert find(batch, "x") == []
            assert find(batch, "method") == []
            assert find(batch, "x.y") == []
        assert only([hidden, {"x": X}]) is X
    assert waiting._result is None


def test_a_defaultdict_gets_no_new_keys() -> None:
    batch = collections.defaultdict(list, y=[X])
    assert find(batch, "x") == []
    assert list(batch) == ["y"]


def test_structures_without_end_are_left_in_time() -> None:
    loop: list[Any] = []
    loop.append(loop)
    ring = Plain(None)
    ring.x = ring
    wide = {str(place): {str(inner): [] for inner in range(100)} for place in range(100)}
    deep: Any = {"x": X}
    for _ in range(50):
        deep = [deep]
    for batch in (loop, ring, wide, deep, {"x": loop}, {"x": deep}):
        assert find(batch, "x") == []


def test_private_members_are_searched_but_not_listed() -> None:
    assert only(Holder({"x": X})) is X
    hidden = Plain(X)
    hidden._cache = Y  # type: ignore[attr-defined]
    assert [found.name for found in expand("batch", hidden, depth=2)] == ["batch.x"]


Nested = st.recursive(
    st.sampled_from([None, 1, "text"]) | st.builds(lambda: torch.ones(1)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.builds(Data, inner, inner)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def leaves(value: Any, depth: int) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if depth == 0:
        return []
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, Data):
        parts = (value.x, value.other)
    return [leaf for part in parts for leaf in leaves(part, depth - 1)]


@settings(max_examples=200, deadline=None)
@given(Nested, st.integers(0, 4))
def test_expand_finds_every_tensor_in_order_under_a_name_that_leads_to_it(value: Any, depth: int) -> None:
    found = expand("value", value, depth=depth)
    expected = leaves(value, depth)
    assert [id(one.tensor) for one in found] == list(dict.fromkeys(map(id, expected)))
    assert len({one.name for one in found}) == len(found)
    for one in found:
        path = one.name.replace("[", "['").replace("]", "']")
        for place in "0123456789":
            path = path.replace(f"['{place}']", f"[{place}]")
        assert eval(path, {"value": value}) is one.tensor
