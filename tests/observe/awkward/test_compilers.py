"""torch.compile around us: it compiles the program as ever, and what it hides has a name."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from aorta_collectors.observe.around import in_place_of
from aorta_collectors.observe.compiling.hidden_calls import graph_breaks
from tests.observe.watching import EVERYTHING, two_layers, watching

X = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


class Printing(nn.Module):
    """Its graph ends in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        torch._dynamo.graph_break()
        return x.tanh()


def frames(origin: bool | None) -> int:
    """Functions that the compiler has looked at; `origin` None: nothing is armed."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Printing(), nn.Linear(4, 1))
    compiled = torch.compile(lambda x: model(x).sum(), backend="eager")
    armed: Any = contextlib.nullcontext() if origin is None else watching(EVERYTHING, origin=origin)
    with armed:
        for _ in range(2):
            compiled(X).backward()
    return int(torch._dynamo.utils.counters["frames"]["total"])


@pytest.mark.parametrize("origin", [False, True])
def test_none_of_our_functions_is_compiled(origin: bool) -> None:
    assert frames(origin) == frames(None)


def test_a_compiled_function_makes_a_step_of_each_call_and_hides_what_it_calls() -> None:
    model = two_layers()
    compiled = torch.compile(lambda x: model(x).sum(), backend="eager")
    with watching() as (observer, seen):
        for _ in range(3):
            compiled(X).backward()
    assert observer.step == 3
    assert [root.label for root in seen.roots] == ["Sequential"]
    assert list(observer.roots.opaque) == ["0", "2"]
    assert {role for step in seen.by_step for _, role in seen.places(step)} == {"weight", "bias"}


def test_compiled_code_that_blocks_share_hides_each_of_them() -> None:
    blocks = nn.ModuleList(Printing() for _ in range(3))
    apply = torch.compile(lambda block, x: block(x), backend="eager")
    with watching() as (observer, _):
        for block in blocks:
            apply(block, X)
    assert len(list(observer.roots.opaque)) == 3


def test_a_model_is_freed_though_a_compiled_function_has_called_it() -> None:
    import gc
    import weakref

    model = two_layers()
    with watching() as (observer, _):
        torch.compile(lambda m, x: m(x), backend="eager")(model, X)
        reference = weakref.ref(model)
        del model
        torch._dynamo.reset()
        gc.collect()
        assert reference() is None
    assert observer.step == 1


def test_graph_breaks_are_counted_by_their_reason() -> None:
    torch.compile(Printing(), backend="eager")(X)
    ((reason, count),) = graph_breaks().items()
    assert "graph_break" in reason
    assert "\n" not in reason
    assert count == 1


def test_what_takes_a_functions_place_leaves_warnings_on_the_callers_line() -> None:
    def original() -> int:
        """Says so."""
        warnings.warn("deprecated", FutureWarning, stacklevel=2)
        return 1

    def ours() -> int:
        return original()

    replaced = in_place_of(original, ours)
    with pytest.warns(FutureWarning) as caught:
        assert replaced() == 1
    assert caught[0].filename == __file__
    assert (replaced.__name__, replaced.__doc__) == ("original", "Says so.")
