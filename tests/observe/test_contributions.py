"""The part of a gradient that one use of a tensor contributes, against the same computed on its own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aorta_collectors.observe.contributions import SingleUse, hook_contribution

USES: dict[str, Callable[[Tensor], Tensor]] = {
    "one operation": torch.sin,
    "several": lambda x: torch.exp(x).square() * 0.5,
    "twice": lambda x: x.square() + torch.cos(x),
    "both operands": lambda x: x * x,
    "a custom function": lambda x: _Double.apply(x),  # type: ignore[no-untyped-call]
    "a view": lambda x: x[1:].sum(),
}


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 2


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("is_leaf", [True, False])
def test_it_is_the_gradient_of_that_use_alone(name: str, is_leaf: bool) -> None:
    torch.manual_seed(0)
    start = torch.randn(4, requires_grad=True)
    x = start if is_leaf else start * 1.5
    mine, other = USES[name](x), torch.tanh(x) * 7
    seen: list[Tensor] = []
    assert hook_contribution(x, [mine], seen.append)
    (mine.sum() + other.sum()).backward()
    alone = x.detach().requires_grad_()
    USES[name](alone).sum().backward()
    assert alone.grad is not None
    torch.testing.assert_close(torch.stack(seen).sum(0), alone.grad)


def test_the_gradients_are_bit_for_bit_the_same() -> None:
    def gradient(hooked: bool) -> Tensor:
        torch.manual_seed(1)
        x = torch.randn(50, requires_grad=True)
        parts = [torch.sin(x), torch.exp(x), x * x]
        if hooked:
            for part in parts:
                assert hook_contribution(x, [part], lambda grad: None)
        sum(part.sum() for part in parts).backward()  # type: ignore[union-attr]
        assert x.grad is not None
        return x.grad

    assert torch.equal(gradient(True), gradient(False))


def test_what_does_not_lead_to_the_tensor_hooks_nothing() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    assert not hook_contribution(x, [torch.sin(y)], lambda grad: None)
    assert not hook_contribution(x, [], lambda grad: None)


def test_a_graph_that_is_too_large_is_left_alone() -> None:
    x = torch.ones(2, requires_grad=True)
    out = x * 2
    for _ in range(6000):
        out = out + 1
    assert not hook_contribution(x, [out], lambda grad: None)


def test_the_graph_is_freed_as_ever() -> None:
    class Box:
        pass

    x = torch.ones(2, requires_grad=True) * 2
    box = Box()
    gone = weakref.ref(box)
    out = torch.sin(x)
    hook_contribution(x, [out], lambda grad, box=box: None)  # type: ignore[misc]
    del box
    gc.disable()
    try:
        del out, x
        assert gone() is None
    finally:
        gc.enable()


class TestSingleUse:
    """Where a layer hands the gradient of its input on: the same place each time, and never a wrong one."""

    LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
        "Linear of 2 dimensions": (lambda: torch.nn.Linear(4, 3), (5, 4)),
        "Linear of 3": (lambda: torch.nn.Linear(4, 3), (2, 5, 4)),
        "Linear without bias": (lambda: torch.nn.Linear(4, 3, bias=False), (2, 5, 4)),
        "LayerNorm": (lambda: torch.nn.LayerNorm(4), (5, 4)),
        "Conv2d": (lambda: torch.nn.Conv2d(2, 3, 3), (1, 2, 5, 5)),
        "Softmax": (lambda: torch.nn.Softmax(-1), (5, 4)),
    }

    @staticmethod
    def watched(node: Any, position: int) -> list[Tensor]:
        """What the node hands on there, once it has."""
        seen: list[Tensor] = []
        node.register_hook(lambda grads, _: seen.append(grads[position]))
        return seen

    @pytest.mark.parametrize("name", LAYERS)
    @pytest.mark.parametrize("is_leaf", [True, False])
    def test_it_is_found_again_and_again(self, name: str, is_leaf: bool) -> None:
        make, shape = self.LAYERS[name]
        layer, use = make(), SingleUse()
        for _ in range(3):
            start = torch.randn(shape, requires_grad=True)
            x = start if is_leaf else start * 2
            output = layer(x)
            found = use.find(x, output)
            assert found is not None
            seen = self.watched(*found)
            (output.square().sum() + x.sum() * 3).backward()
            alone = x.detach().requires_grad_()
            layer(alone).square().sum().backward()
            assert alone.grad is not None
            torch.testing.assert_close(seen[0].reshape(shape), alone.grad)

    def test_another_way_is_noticed(self) -> None:
        """The same layer on inputs of 2 and 3 dimensions, under autocast, and with a frozen weight."""
        layer, use = torch.nn.Linear(4, 3), SingleUse()
        for number in range(8):
            x = torch.randn((5, 4) if number % 2 else (2, 5, 4), requires_grad=True)
            layer.weight.requires_grad_(number % 3 != 0)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=number > 3):
                output = layer(x)
            found = use.find(x, output)
            assert found is not None
            seen = self.watched(*found)
            output.sum().backward()
            assert x.grad is not None
            assert torch.equal(seen[0].reshape(x.shape).to(x.dtype), x.grad)

    def test_an_output_that_another_input_led_to_is_none(self) -> None:
        layer, use = torch.nn.Linear(4, 3), SingleUse()
        x, other = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
        assert use.find(x, layer(x)) is not None
        assert use.find(x, layer(other)) is None
        assert use.find(x, layer(x)) is not None
