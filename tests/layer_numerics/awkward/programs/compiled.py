"""What torch.compile runs: a function around the model's call, parts of a model, graphs that break."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from shared import BAD_STEP, batch, main, say, two_layers
from torch import Tensor, nn

compiled = functools.partial(torch.compile, backend="eager")
torch._logging.set_logs(all=logging.ERROR)


def _train(model: nn.Module, bad: bool, loss_of: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = loss_of(batch(bad and step == BAD_STEP))
        loss.backward()
        optimizer.step()
        say(loss)


def function_around(bad: bool) -> None:
    """The forward pass and the loss are one compiled function."""
    model = two_layers()

    @compiled
    def loss_of(x: Tensor) -> Tensor:
        return model(x).square().mean()

    _train(model, bad, loss_of)


def step_function(bad: bool) -> None:
    """The whole training step is a compiled function."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @compiled
    def step_of(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for step in range(1, 5):
        say(step_of(batch(bad and step == BAD_STEP)))


def method_around(bad: bool) -> None:
    """A method of a trainer object, which holds the model, is compiled; it has a graph break in it."""

    class Trainer:
        def __init__(self) -> None:
            self.model = nn.ModuleDict({"body": two_layers(), "head": nn.Linear(1, 1)})

        @compiled
        def loss_of(self, x: Tensor) -> Tensor:
            hidden = self.model["body"](x)
            torch._dynamo.graph_break()
            out: Tensor = self.model["head"](hidden).square().mean()
            return out

    trainer = Trainer()
    _train(trainer.model, bad, trainer.loss_of)


def two_models_in_one(bad: bool) -> None:
    """A compiled function calls two models."""
    encoder, decoder = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    @compiled
    def loss_of(x: Tensor) -> Tensor:
        return decoder(encoder(x).relu()).square().mean()

    _train(nn.ModuleList([encoder, decoder]), bad, loss_of)


def whole_model(bad: bool) -> None:
    model = two_layers()
    made = compiled(model)
    _train(model, bad, lambda x: made(x).square().mean())


def in_place(bad: bool) -> None:
    model = two_layers()
    model.compile(backend="eager")
    _train(model, bad, lambda x: model(x).square().mean())


def part_of_model(bad: bool) -> None:
    model = nn.Sequential(compiled(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 1))
    _train(model, bad, lambda x: model(x).square().mean())


def graph_breaks(bad: bool) -> None:
    """A model with two breaks in its forward."""

    class Breaking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            torch._dynamo.graph_break()
            x = self.second(x)
            torch._dynamo.graph_break()
            out: Tensor = self.third(x)
            return out

    model = Breaking()
    made = compiled(model)
    _train(model, bad, lambda x: made(x).square().mean())


def broken_inside(bad: bool) -> None:
    """A compiled function calls a model, in one of whose layers a graph ends: the layers around are called eagerly."""

    class Printing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            print(end="", flush=True)
            return out.tanh()

    model = nn.Sequential(nn.Linear(4, 4), Printing(4, 4), nn.Linear(4, 1))

    @compiled
    def loss_of(x: Tensor) -> Tensor:
        return model(x).square().mean()

    _train(model, bad, loss_of)


def one_graph_for_all(bad: bool) -> None:
    """The blocks of a stack are compiled one by one, and share their compiled code."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        @compiled
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).tanh()

    model = nn.Sequential(Block(), Block(), Block(), nn.Linear(4, 1))
    _train(model, bad, lambda x: model(x).square().mean())


def loss_only(bad: bool) -> None:
    """Only the loss is compiled: no layer is hidden."""
    model = two_layers()
    loss_of = compiled(lambda out: out.square().mean())
    _train(model, bad, lambda x: loss_of(model(x)))


def optimizer_only(bad: bool) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step_of = compiled(lambda: optimizer.step())
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        step_of()
        say(loss)


def eager_for_evaluation(bad: bool) -> None:
    """The training step is compiled, and the evaluation between is not."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @compiled
    def loss_of(x: Tensor) -> Tensor:
        return model(x).square().mean()

    for step in range(1, 5):
        optimizer.zero_grad()
        loss = loss_of(batch(bad and step == BAD_STEP))
        loss.backward()
        optimizer.step()
        say(loss)
        with torch.no_grad():
            say(model(batch(False)))


if __name__ == "__main__":
    main(globals())
