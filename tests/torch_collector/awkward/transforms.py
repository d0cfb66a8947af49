"""Optimizers of all kinds; what transforms, traces and compiles."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, vmap
from torch.utils.checkpoint import checkpoint

from aorta_collectors.tensors import observe, watch_grad
from tests.torch_collector.awkward.shared import Reluctant, trained, two_layers

# -- optimizers


def closure() -> Iterator[Any]:
    model = two_layers()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x = torch.randn(3, 4)

    def loss_of() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        yield optimizer.step(loss_of)


def optimizer_of_its_own() -> Iterator[Any]:
    class Plain:
        def __init__(self, parameters: list[nn.Parameter]) -> None:
            self.parameters = parameters

        def zero_grad(self) -> None:
            for parameter in self.parameters:
                parameter.grad = None

        def step(self) -> None:
            with torch.no_grad():
                for parameter in self.parameters:
                    assert parameter.grad is not None
                    parameter -= 0.1 * parameter.grad

    model = two_layers()
    yield from trained(model, Plain(list(model.parameters())))


def scaler_that_skips() -> Iterator[Any]:
    model = two_layers()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().sum() * 16
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss
        yield scaler.get_scale()


# -- transforms, tracers and compilers


def transformed() -> Iterator[Any]:
    """vmap, grad, forward-mode derivatives, and derivatives of those."""
    model, x = two_layers(), torch.randn(3, 4)
    parameters = dict(model.named_parameters())

    def loss_of(given: dict[str, Tensor]) -> Tensor:
        result: Tensor = functional_call(model, given, (x,))
        return result.square().mean()

    gradients, loss = grad_and_value(loss_of)(parameters)
    yield from (loss, *gradients.values())
    yield vmap(model)(torch.randn(5, 3, 4))
    yield vmap(lambda row: model(row) + torch.rand(1), randomness="different")(x)
    yield jacfwd(model)(x)
    yield hessian(lambda x: model(x).sum())(x)
    yield from trained(model, steps=1)


def scripted_and_traced() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from trained(torch.jit.script(nn.Sequential(two_layers(), nn.Linear(1, 1))))
        yield from trained(torch.jit.trace(two_layers(), torch.randn(3, 4)))
    yield from trained(two_layers())


def exported() -> Iterator[Any]:
    from torch.fx.experimental.proxy_tensor import make_fx

    model = two_layers()
    yield from trained(model)
    program = torch.export.export(model, (torch.randn(3, 4),))
    yield str(program.graph)
    yield program.module()(torch.ones(3, 4))
    yield make_fx(model)(torch.randn(3, 4)).code
    yield from trained(torch.fx.symbolic_trace(model))


def observing_itself() -> Iterator[Any]:
    """What a program hands over itself, wherever it does."""
    from torch.fx.experimental.proxy_tensor import make_fx

    class Observed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return watch_grad(observe(self.layer(x), name="hidden"), name="hidden").tanh()

    model, x = Observed(), torch.randn(3, 4)
    yield from trained(model)
    yield vmap(model)(torch.randn(2, 3, 4))
    yield grad(lambda x: model(x).square().sum())(x)
    yield hessian(lambda x: model(x).square().sum())(x)
    for reentrant in (False, True):
        given = x.clone().requires_grad_()
        checkpoint(model, given, use_reentrant=reentrant).sum().backward()
        yield given.grad
    yield make_fx(model)(x).code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield torch.jit.trace(model, x).code
    leaf = watch_grad(torch.ones(3, requires_grad=True), name="leaf")
    watch_grad(leaf * 2, name="inner").mul_(3).sum().backward()
    yield leaf.grad
    yield observe({"none": None, "some": [x.to_sparse(), Reluctant(x)]}, name="value")["some"][0].sum()


def without_memory() -> Iterator[Any]:
    """Meta tensors, fake ones, and a model that is real in the end."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        yield from (loss.shape for loss in trained(two_layers(), steps=1))
    with torch.device("meta"):
        model = two_layers()
        yield from (loss.shape for loss in trained(model, steps=1))
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    yield from trained(model)
