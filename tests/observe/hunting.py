"""A sink that looks for the origin of the first bad value, as a session does, and small programs that make one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.origin import OriginFinder
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.watch import WatchGroup
from tests.observe.watching import LINEARS, Seen

NAN, INF = float("nan"), float("inf")


class Hunt(Seen):
    """What was seen, and where the first bad value came into being."""

    def __init__(self, world_size: int) -> None:
        super().__init__()
        self.finder = OriginFinder(0, world_size)

    def observed(self, trace: StepTrace) -> None:
        super().observed(trace)
        self.finder.step(trace)

    @property
    def place(self) -> tuple[str, str, int] | None:
        """(stage, module, step)."""
        origin = self.finder.origin
        return (origin["stage"], origin["module"], origin["step"]) if origin is not None else None


@contextlib.contextmanager
def hunting(*groups: WatchGroup, world_size: int = 1, **options: Any) -> Iterator[Hunt]:
    """An observer with origin on, armed around the block; an error of its own fails the test."""
    hunt = Hunt(world_size)
    observer = Observer(Request(groups or (LINEARS,), origin=True, **options), hunt)
    observer.arm()
    try:
        yield hunt
    finally:
        observer.disarm()
    assert observer.errors == 0, observer.first_error


class Apply(nn.Module):
    """A layer without parameters that applies a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Between(nn.Module):
    """Two layers, and code between them that belongs to this module."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, 1)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.function(self.first(x)))
        return out


def fit(
    model: nn.Module,
    batches: list[Any],
    loss: Callable[[Tensor], Tensor] = lambda out: out.square().mean(),
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    between: Callable[[nn.Module], None] = lambda model: None,
) -> list[str]:
    """Train, one step a batch; returns the bits of the losses.

    Args:
        optimizer: Made of the parameters; plain SGD by default.
        between: Called with the model between backward() and the optimizer's step.
    """
    torch.manual_seed(0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    stepping = (optimizer or (lambda params: torch.optim.SGD(params, lr=0.01)))(parameters) if parameters else None
    losses = []
    for batch in batches:
        value = loss(model(*batch) if isinstance(batch, tuple) else model(batch))
        if stepping is not None:
            stepping.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            between(model)
            stepping.step()
        losses.append(value.item().hex())
    return losses


def at_step(step: int, bad: Any, good: Any, steps: int = 4) -> list[Any]:
    """Batches that are good except for one."""
    return [bad if number == step else good for number in range(1, steps + 1)]
