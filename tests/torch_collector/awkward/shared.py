"""What the awkward programs share: a model, its loop, and a module that hands on what a function makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

Program = Callable[[], Iterator[Any]]


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def trained(model: nn.Module, optimizer: Any = None, steps: int = 3) -> Iterator[Tensor]:
    """The losses of a plain loop."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        yield loss


class Wrapped(nn.Module):
    """A layer, and a function of what comes out of it."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.part = nn.Identity()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        hidden = self.layer(x)
        self.part(self.function(hidden))
        return hidden


class Reluctant:
    """Answers nothing that it is asked."""

    def __init__(self, held: Tensor) -> None:
        self.__dict__.update(held=held, itself=self)

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("no")

    __getattr__ = __len__ = __iter__ = __eq__ = __bool__ = __repr__ = _refuse
    __hash__ = None  # type: ignore[assignment]
