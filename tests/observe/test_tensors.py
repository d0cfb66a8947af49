"""Which tensors of a structured value are found, under which paths, and that looking runs nothing of the program."""

from __future__ import annotations

import dataclasses
import enum
import time
import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from aorta_collectors.observe.tensors import tensors_of, tensors_of_call

DEPTH = 4
Built = tuple[Any, list[Tensor]]  # a value, and the tensors in it from left to right


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Named:
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    first: Any
    second: Any


class Plain:
    def __init__(self, first: Any, second: Any) -> None:
        self.first = first
        self.second = second
        self._private = torch.ones(1)


class ModelOutput(OrderedDict[str, Any]):
    """Like that of transformers: a mapping whose entries are attributes as well."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first=first, second=second)
        self.first = first
        self.second = second


PAIRS: tuple[Callable[[Any, Any], Any], ...] = (
    Pair,
    Named,
    Slotted,
    Plain,
    ModelOutput,
    lambda first, second: types.SimpleNamespace(first=first, second=second),
    namedtuple("Made", ["first", "second"]),
)
KEYS = st.one_of(
    st.text(max_size=4),
    st.integers(),
    st.booleans(),
    st.none(),
    st.binary(max_size=3),
    st.tuples(st.text(max_size=2), st.integers(0, 9)),
)
LEAVES: st.SearchStrategy[Built] = st.one_of(
    st.integers(0, 3).map(lambda size: (tensor := torch.zeros(size), [tensor])),
    st.sampled_from([None, 7, 2.5, "text", b"bytes", torch.float32, torch.Size([2])]).map(lambda value: (value, [])),
)


def combined(parts: list[Built]) -> tuple[list[Any], list[Tensor]]:
    return [value for value, _ in parts], [tensor for _, found in parts for tensor in found]


@st.composite
def structures(draw: st.DrawFn, depth: int = DEPTH) -> Built:
    kind = draw(st.integers(0, 3)) if depth else 0
    if kind == 0:
        return draw(LEAVES)
    inner = structures(depth - 1)
    if kind == 1:
        values, tensors = combined(draw(st.lists(inner, max_size=3)))
        return draw(st.sampled_from([list, tuple]))(values), tensors
    if kind == 2:
        table = draw(st.dictionaries(KEYS, inner, max_size=3))
        _, tensors = combined(list(table.values()))
        return {key: value for key, (value, _) in table.items()}, tensors
    (first, second), tensors = combined([draw(inner), draw(inner)])
    return draw(st.sampled_from(PAIRS))(first, second), tensors


def follow(value: Any, path: str) -> Any:
    """What the path gets at, as the Python expression that it reads like."""
    return eval(f"value{'' if path[:1] in ('', '[') else '.'}{path}", {"value": value})


class TestPaths:
    @settings(max_examples=200, deadline=None)
    @given(structures())
    def test_every_tensor_is_found_once_in_order_and_its_path_gets_at_it(self, built: Built) -> None:
        value, tensors = built
        found = tensors_of(value)
        assert [id(tensor) for _, tensor in found] == [id(tensor) for tensor in tensors]
        assert len({path for path, _ in found}) == len(found)
        for path, tensor in found:
            assert follow(value, path) is tensor

    @settings(max_examples=50, deadline=None)
    @given(structures())
    def test_paths_stay_the_same_and_begin_with_what_is_asked(self, built: Built) -> None:
        value, _ = built
        paths = [path for path, _ in tensors_of(value)]
        assert [path for path, _ in tensors_of(value)] == paths
        prefixed = [path for path, _ in tensors_of(value, "batch")]
        joined = [path if path[:1] in ("", "[") else f".{path}" for path in paths]
        assert prefixed == [f"batch{path}" for path in joined]

    @settings(max_examples=50, deadline=None)
    @given(st.lists(structures(2), max_size=3), st.dictionaries(st.sampled_from(["x", "mask"]), structures(2)))
    def test_of_a_call_positions_come_first_and_keywords_after(
        self, positional: list[Built], named: dict[str, Built]
    ) -> None:
        args = tuple(value for value, _ in positional)
        kwargs = {name: value for name, (value, _) in named.items()}
        _, tensors = combined([*positional, *named.values()])
        found = tensors_of_call(args, kwargs)
        assert [id(tensor) for _, tensor in found] == [id(tensor) for tensor in tensors]
        for path, tensor in found:
            assert eval(f"args{path}" if path.startswith("[") else path, {"args": args, **kwargs}) is tensor

    @pytest.mark.parametrize(
        ("value", "paths"),
        [
            (torch.ones(1), [""]),
            ((torch.ones(1), {"a": torch.ones(1)}), ["[0]", "[1]['a']"]),
            (Pair(torch.ones(1), [torch.ones(1)]), ["first", "second[0]"]),
            ([Named(None, torch.ones(1))], ["[0].second"]),
            (ModelOutput(torch.ones(1), torch.ones(1)), ["['first']", "['second']"]),
            (Plain(torch.ones(1), 3), ["first"]),
            (pack_sequence([torch.ones(2), torch.ones(1)]), ["data", "batch_sizes"]),
        ],
    )
    def test_it_reads_like_the_expression_a_user_would_write(self, value: Any, paths: list[str]) -> None:
        assert [path for path, _ in tensors_of(value)] == paths

    def test_of_one_positional_tensor_it_is_the_first_argument(self) -> None:
        assert [path for path, _ in tensors_of_call((torch.ones(1),), None)] == ["[0]"]
        assert [path for path, _ in tensors_of_call((torch.ones(1),), {})] == ["[0]"]

    def test_of_a_key_that_an_object_is_it_does_not_hold_the_address(self) -> None:
        """It would differ between two processes, and grow the table of sites with each batch."""

        class Key:
            pass

        one, other = Key(), Key()
        assert [path for path, _ in tensors_of({one: torch.ones(1)})] == [
            path for path, _ in tensors_of({other: torch.ones(1)})
        ]

    def test_of_a_key_that_is_a_tensor_it_does_not_hold_the_values(self) -> None:
        (path,) = [path for path, _ in tensors_of({torch.full((1,), 3.25): torch.ones(1)})]
        assert "3.25" not in path

    def test_an_enumeration_as_key_is_named(self) -> None:
        Color = enum.Enum("Color", ["RED", "BLUE"])
        paths = [path for path, _ in tensors_of({Color.RED: torch.ones(1), Color.BLUE: torch.ones(1)})]
        assert len(set(paths)) == 2
        assert "RED" in paths[0]


class TestJagged:
    """torchrec's containers: what they hold, never what they would have to wait for."""

    def test_values_and_weights_of_a_keyed_jagged_tensor(self) -> None:
        from torchrec import KeyedJaggedTensor

        values, weights = torch.tensor([1, 2, 3]), torch.tensor([0.5, 1.0, 2.0])
        bare = KeyedJaggedTensor(["f"], values, lengths=torch.tensor([2, 1]))
        weighted = KeyedJaggedTensor(["f"], values, weights, torch.tensor([2, 1]))
        assert [path for path, _ in tensors_of(bare)] == ["values()"]
        assert [path for path, _ in tensors_of({"sparse": weighted})] == ["['sparse'].values()", "['sparse'].weights()"]
        assert follow(weighted, "weights()") is tensors_of(weighted)[1][1]

    def test_values_of_a_jagged_and_of_a_keyed_tensor(self) -> None:
        from torchrec import JaggedTensor, KeyedTensor

        jagged = JaggedTensor(torch.ones(3), lengths=torch.tensor([2, 1]))
        keyed = KeyedTensor(["f"], [2], torch.ones(3, 2))
        assert [path for path, _ in tensors_of((jagged, keyed))] == ["[0].values()", "[1].values()"]

    def test_an_awaitable_is_never_waited_for(self) -> None:
        from torchrec.distributed.types import Awaitable, LazyAwaitable

        waited = []

        class Eager(Awaitable[Tensor]):  # type: ignore[misc]
            def _wait_impl(self) -> Tensor:
                waited.append("eager")
                return torch.ones(1)

        class Lazy(LazyAwaitable[Tensor]):  # type: ignore[misc]
            def _wait_impl(self) -> Tensor:
                waited.append("lazy")
                return torch.ones(1)

        assert tensors_of([Eager(), Lazy(), torch.ones(1)])[0][0] == "[2]"
        assert waited == []


class TestLookingRunsNothing:
    """A property may synchronise, load, or raise: none is read."""

    def test_properties_are_not_read(self) -> None:
        class Dear:
            def __init__(self) -> None:
                self.x = torch.ones(1)

            @property
            def dear(self) -> Tensor:
                raise AssertionError("read")

        assert [path for path, _ in tensors_of(Dear())] == ["x"]

    @pytest.mark.parametrize("kind", ["object", "slots", "list", "tuple", "dataclass"])
    def test_getattr_is_not_called(self, kind: str) -> None:
        asked: list[str] = []

        class Asking:
            def __getattr__(self, name: str) -> Any:
                asked.append(name)
                raise AttributeError(name)

        class Slots(Asking):
            __slots__ = ("x",)

        class List(list[Any]):
            def __getattr__(self, name: str) -> Any:
                asked.append(name)
                raise AttributeError(name)

        class Tuple(tuple[Any, ...]):
            def __getattr__(self, name: str) -> Any:
                asked.append(name)
                raise AttributeError(name)

        @dataclasses.dataclass
        class Data(Asking):
            x: Any
            late: Any = dataclasses.field(init=False)

        makers: dict[str, Callable[[], Any]] = {
            "object": Asking,
            "slots": Slots,
            "list": lambda: List([1]),
            "tuple": lambda: Tuple([1]),
            "dataclass": lambda: Data(torch.ones(1)),
        }
        tensors_of(makers[kind]())
        assert asked == []

    def test_without_a_dict_of_its_own_getattr_is_not_called_either(self) -> None:
        asked: list[str] = []

        class Base:
            __slots__ = ()

            def __getattr__(self, name: str) -> Any:
                asked.append(name)
                raise AttributeError(name)

        class Slots(Base):
            __slots__ = ("x",)
            x: Tensor

        value = Slots()
        value.x = torch.ones(1)
        tensors_of(value)
        assert asked == []

    def test_a_generator_is_not_drawn_from(self) -> None:
        generator: Iterator[Tensor] = (torch.ones(1) for _ in range(3))
        assert tensors_of([generator]) == []
        assert len(list(generator)) == 3

    def test_modules_classes_and_functions_are_left_closed(self) -> None:
        def function() -> None: ...

        function.x = torch.ones(1)  # type: ignore[attr-defined]
        assert tensors_of([nn.Linear(1, 1), Plain, function, torch]) == []


class TestLimits:
    """What is passed to a module can be of any size and shape; looking must end soon."""

    def test_at_most_1000_tensors_of_one_value_are_found_and_it_is_told(self) -> None:
        value = [torch.zeros(1) for _ in range(1100)]
        cut: list[int] = []
        found = tensors_of(value, cut=cut.append)
        assert [path for path, _ in found] == [f"[{index}]" for index in range(1000)]
        assert cut == [1000]
        assert len(tensors_of(value[:1000], cut=cut.append)) == 1000
        assert cut == [1000]
        assert len(tensors_of_call((value,), {"b": value}, cut.append)) == 2000
        assert cut == [1000] * 3

    def test_a_value_that_holds_itself_ends(self) -> None:
        value: list[Any] = [torch.ones(1)]
        value.append(value)
        table: dict[str, Any] = {"x": torch.ones(1)}
        table["self"] = table
        namespace = types.SimpleNamespace(x=torch.ones(1))
        namespace.self = namespace
        for holder in (value, table, namespace):
            found = tensors_of(holder)
            assert 1 <= len(found) <= 1000
            assert found[0][1] is found[-1][1]

    @pytest.mark.parametrize("kind", ["holds itself many times", "many numbers", "graph"])
    def test_a_value_without_tensors_is_looked_through_quickly(self, kind: str) -> None:
        """A batch of token ids as a list, or an object that leads to half of the program."""
        value: Any = []
        if kind == "many numbers":
            value = list(range(1_000_000))
        elif kind == "graph":
            value = [types.SimpleNamespace(name=str(index)) for index in range(60)]
            for node in value:
                node.neighbours = value
        else:
            value += [value] * 10
        began = time.perf_counter()
        assert tensors_of(value) == []
        assert time.perf_counter() - began < 0.3

    def test_a_mapping_is_looked_through_in_its_own_order(self) -> None:
        class Reversed(Mapping[str, Any]):
            def __init__(self, table: dict[str, Any]) -> None:
                self.table = table

            def __getitem__(self, key: str) -> Any:
                return self.table[key]

            def __iter__(self) -> Iterator[str]:
                return reversed(self.table)

            def __len__(self) -> int:
                return len(self.table)

        paths = [path for path, _ in tensors_of(Reversed({"a": torch.ones(1), "b": torch.ones(1)}))]
        assert paths == ["['b']", "['a']"]
