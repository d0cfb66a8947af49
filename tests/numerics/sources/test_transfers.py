"""H2D and GRAD_H2D: from host memory to a device, for which torch's meta device stands here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.sources.transfers import TransferSource, built_for_device
from tests.numerics.driving import backward, forward, timeline

ORIGINAL = Tensor.to  # as a library may have got it by name


@pytest.fixture
def observed() -> Iterator[tuple[Timeline, TransferSource]]:
    spans = timeline()
    source = TransferSource(spans, pytest.fail, has_device=True)
    source.start()
    yield spans, source
    source.stop()
    assert Tensor.to is ORIGINAL
    assert "to" not in vars(Tensor)


def told(spans: Timeline) -> list[tuple[str, Any]]:
    return [(span.name, span.attributes and span.attributes["bytes"]) for span in spans.take()]


def test_a_move_is_a_span_and_a_conversion_is_not(observed: tuple[Timeline, TransferSource]) -> None:
    spans, _ = observed
    tensor = torch.ones(8)
    moved = tensor.to("meta", non_blocking=True)
    assert moved.is_meta
    tensor.to(torch.float64)
    tensor.to("cpu")
    moved.to(torch.float64)
    assert told(spans) == [("H2D", 32)]


def test_modules_and_jagged_tensors_go_through_it(observed: tuple[Timeline, TransferSource]) -> None:
    spans, _ = observed
    nn.Linear(4, 4).to("meta")
    assert told(spans) == [("H2D", 64), ("H2D", 16)]
    keyed = KeyedJaggedTensor.from_lengths_sync(["a"], torch.arange(3), torch.tensor([2, 1]))
    keyed.to(torch.device("meta"))
    names = told(spans)
    assert {name for name, _ in names} == {"H2D"}
    assert ("H2D", 24) in names


def test_within_a_forward_it_belongs_to_that(observed: tuple[Timeline, TransferSource]) -> None:
    spans, source = observed

    class Moving(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.to("meta")

    forward(source, Moving(), torch.ones(2))
    assert told(spans) == []
    torch.ones(2).to("meta")
    assert told(spans) == [("H2D", 8)]


def test_between_backward_and_optimizer_it_is_gradients(observed: tuple[Timeline, TransferSource]) -> None:
    spans, source = observed
    parameter = nn.Parameter(torch.ones(4))
    source.step_began(1)
    backward(source, parameter.sum())
    assert parameter.grad is not None
    parameter.grad.to("meta")
    source.optimizer_began(torch.optim.SGD([parameter], lr=0.1))
    torch.ones(2).to("meta")
    assert told(spans) == [("GRAD_H2D", 16), ("H2D", 8)]


@pytest.mark.usefixtures("observed")
def test_a_subclass_finds_the_method_among_those_it_knows() -> None:
    handled = {ORIGINAL: "before", torch.Tensor.to: "after"}
    assert len(handled) == 1
    assert torch.Tensor.to.__name__ == "to"

    class Sub(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handled[func] if func in handled else super().__torch_function__(func, types, args, kwargs or {})

    assert torch.ones(2).as_subclass(Sub).to("meta") == "after"  # type: ignore[comparison-overlap]


@pytest.mark.usefixtures("observed")
def test_code_is_compiled_as_before() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def double(inputs: Tensor) -> Tensor:
        return inputs.to(torch.float64) * 2

    assert double(torch.ones(3)).dtype is torch.float64


def test_without_a_device_nothing_is_touched() -> None:
    source = TransferSource(timeline(), pytest.fail, has_device=False)
    source.start()
    assert Tensor.to is ORIGINAL
    source.stop()
    assert built_for_device() == bool(torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None))
