"""Models that do not stay the same, calls that fail or run elsewhere, and what is freed when."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.torch_collector.awkward.shared import Wrapped, trained, two_layers

# -- models that do not stay the same


def built_for_each_step() -> Iterator[Any]:
    for _ in range(8):
        yield from trained(two_layers(), steps=1)


def copied_and_stored() -> Iterator[Any]:
    model = two_layers()
    for _ in range(2):
        yield from trained(model, steps=1)
        stored = io.BytesIO()
        torch.save(model, stored)
        yield from (len(stored.getvalue()), len(pickle.dumps(model)))
        yield pickle.loads(pickle.dumps(model))(torch.ones(1, 4))
        model = copy.deepcopy(model)


def parts_come_and_go() -> Iterator[Any]:
    model = two_layers()
    yield from trained(model, steps=1)
    del model[2]
    yield from trained(model.append(nn.Linear(4, 2)), steps=1)
    model[0].weight = nn.Parameter(torch.randn(4, 4))
    model[0].register_parameter("bias", None)
    yield from trained(model, steps=1)
    yield from trained(model.bfloat16().float(), steps=1)
    yield model.requires_grad_(False)(torch.randn(3, 4))


def names_of_all_kinds() -> Iterator[Any]:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("a b", "x/y#z\n", "ü€", "(root)", "\ud800", "n" * 3000):
                self.add_module(name, nn.Linear(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self._modules.values():
                assert layer is not None
                x = layer(x)
            return x

    yield from trained(Named())


def nested_deeply() -> Iterator[Any]:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int = 40) -> Tensor:
            result: Tensor = self(self.layer(x), depth - 1) if depth else self.layer(x)
            return result

    yield from trained(Recursive(), steps=2)
    deep: nn.Module = nn.Linear(4, 4)
    for _ in range(40):
        deep = nn.Sequential(deep)
    yield from trained(deep, steps=2)


# -- what goes wrong, and is caught


def failures_that_are_caught() -> Iterator[Any]:
    failing = {"forward": False, "backward": False, "optimizer": False}

    def fail(where: str) -> None:
        if failing[where]:
            raise ValueError(where)

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            fail("optimizer")
            super().step(closure)

    model = Wrapped(lambda x: fail("forward"))
    optimizer = Optimizer(model.parameters(), lr=0.1)
    for where in ("", "forward", "backward", "optimizer", ""):
        failing[where] = True
        optimizer.zero_grad()
        try:
            loss = model(torch.randn(3, 4)).square().mean()
            loss.register_hook(lambda grad: fail("backward"))
            loss.backward()
            optimizer.step()
            yield loss
        except ValueError as error:
            yield repr(error)
        failing[where] = False


def checkpointed() -> Iterator[Any]:
    class Saving(nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 1))
            self.reentrant = reentrant

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.block, x.requires_grad_(), use_reentrant=self.reentrant)

    yield from trained(Saving(True))
    yield from trained(Saving(False))
    with torch.autograd.graph.save_on_cpu():
        yield from trained(two_layers())


# -- without gradients, in threads, and what is freed when


def without_gradients() -> Iterator[Any]:
    model = two_layers()
    with torch.inference_mode():
        yield model(torch.randn(3, 4))
        yield two_layers()(torch.randn(3, 4))
    with torch.no_grad():
        yield model(torch.randn(3, 4))
    yield from trained(model)


def several_threads() -> Iterator[Any]:
    models = [two_layers() for _ in range(3)]
    batches = [torch.randn(3, 4) for _ in range(8)]
    losses: list[list[float]] = [[], [], []]

    def train(number: int) -> None:
        optimizer = torch.optim.SGD(models[number].parameters(), lr=0.1)
        for batch in batches:
            optimizer.zero_grad()
            loss = models[number](batch).square().mean()
            loss.backward()
            optimizer.step()
            losses[number].append(loss.item())

    threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield losses


def freed_at_once() -> Iterator[Any]:
    """Without the garbage collector: results, gradients, models and optimizers have no cycle of ours."""
    gc.disable()
    try:
        for _ in range(3):
            model = two_layers()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            result = model(torch.randn(3, 4))
            result.sum().backward()
            optimizer.step()
            gradient = model[0].weight.grad
            assert gradient is not None
            references = [weakref.ref(each) for each in (result, gradient, model)]
            del result, gradient, optimizer, model
            yield [reference() is None for reference in references]
    finally:
        gc.enable()
