"""The input gradient is what torch's own full backward hook reports."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aorta_collectors.observe.input_gradient import uses_input_once
from aorta_collectors.observe.watch import WatchGroup
from tests.observe.watching import watching


class Residual(nn.Module):
    """The layer's input is also used beside it, so that the tensor's gradient is not the layer's contribution."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.before, self.layer = nn.Linear(4, 4), layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.before(x)
        return self.layer(h) * 2 + h * 100 + h.sin()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: nn.Linear(4, 4), id="Linear"),
        pytest.param(lambda: nn.LayerNorm(4), id="LayerNorm"),
        pytest.param(lambda: nn.GELU(), id="GELU"),
        pytest.param(lambda: nn.Softmax(-1), id="Softmax"),
    ],
)
def test_the_input_gradient_beside_a_residual_is_that_of_the_full_backward_hook(make: object) -> None:
    torch.manual_seed(0)
    model = Residual(make())  # type: ignore[operator]
    x = torch.randn(3, 4)

    reported: list[torch.Tensor] = []
    handle = model.layer.register_full_backward_hook(lambda _module, grad_input, _: reported.append(grad_input[0]))
    model(x).square().sum().backward()
    handle.remove()

    with watching(WatchGroup(names=("layer",), channels=("igrad",))) as (_, seen):
        model(x).square().sum().backward()
    (observed,) = seen.only(1, "layer", "igrad")
    (expected,) = reported
    assert observed.shape == expected.shape
    assert (observed.low, observed.high) == (expected.min().item(), expected.max().item())
    assert observed.site.direction == "bwd"


def test_a_layer_called_twice_reports_each_call_as_the_full_backward_hook_does() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    model = nn.Sequential(nn.Linear(4, 4), layer, layer)
    x = torch.randn(3, 4)
    reported: list[float] = []
    handle = layer.register_full_backward_hook(lambda _module, grad, _: reported.append(grad[0].max().item()))
    model(x).sum().backward()
    handle.remove()
    with watching(WatchGroup(names=("1",), channels=("igrad",))) as (_, seen):
        model(x).sum().backward()
    assert [one.high for one in seen.only(1, "1", "igrad")] == reported
    assert len(reported) == 2


def test_no_input_gradient_is_reported_where_the_input_wants_none() -> None:
    with watching(WatchGroup(types=("Linear",), channels=("igrad",))) as (_, seen):
        nn.Linear(4, 1)(torch.ones(1, 4)).sum().backward()
        with torch.no_grad():
            nn.Linear(4, 1)(torch.ones(1, 4, requires_grad=True))
    assert seen.by_step == {}


def test_a_leaf_input_keeps_its_gradient() -> None:
    x = torch.ones(2, 4, requires_grad=True)
    layer = nn.Linear(4, 1)
    with watching(WatchGroup(types=("Linear",), channels=("igrad",))):
        layer(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, layer.weight.detach().expand(2, 4))


class TestUsesInputOnce:
    """Only a forward that is known to read its input once may get an alias of it."""

    def test_a_subclass_with_its_own_forward_does_not_count(self) -> None:
        class Twice(nn.Linear):
            def forward(self, input: torch.Tensor) -> torch.Tensor:
                return super().forward(input) + input

        class Named(nn.Linear):
            pass

        assert uses_input_once(nn.Linear(2, 2))
        assert uses_input_once(Named(2, 2))
        assert not uses_input_once(Twice(2, 2))
        assert not uses_input_once(nn.MultiheadAttention(2, 1))

    def test_a_forward_replaced_on_the_instance_does_not_count(self) -> None:
        layer = nn.Linear(2, 2)
        layer.forward = lambda x: x + x  # type: ignore[method-assign]
        assert not uses_input_once(layer)
