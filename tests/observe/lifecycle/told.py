"""A listener that writes down what it is told, and a lifecycle armed around a block of code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from aorta_collectors.observe.lifecycle.listener import OwnParameter


class Told:
    """Keeps what it is told, in order, and no tensor but copies of gradients.

    Attributes:
        points: Each as text: "entered fc", "after_step 3".
        gradients: Of outputs, by layer and path.
        held: Names of the parameters, by the point that told them; of the last time.
        at_left: Called with what each call has returned.
    """

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.points: list[str] = []
        self.modules: dict[str, str] = {}
        self.gradients: dict[tuple[str, str], list[Tensor]] = {}
        self.held: dict[str, list[str]] = {}
        self.values: list[dict[str, Tensor]] = []
        self.at_left: Callable[[str, Any], None] = lambda layer, result: None

    def attached(self, label: str) -> None:
        self.labels.append(label)

    def step_began(self, step: int) -> None:
        self.points.append(f"step_began {step}")

    def before_forward(self, step: int) -> None:
        self.points.append(f"before_forward {step}")

    def entered(self, layer: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.modules[layer] = type(module).__name__
        self.points.append(f"entered {layer}")

    def left(self, layer: str, module: nn.Module, result: Any) -> None:
        self.points.append(f"left {layer}")
        self.at_left(layer, result)

    def after_forward(self, step: int) -> None:
        self.points.append(f"after_forward {step}")

    def output_gradient(self, layer: str, module: nn.Module, path: str, grad: Tensor) -> None:
        self.gradients.setdefault((layer, path), []).append(grad.clone())

    def after_backward(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        self.points.append(f"after_backward {step}")
        self.held["after_backward"] = [f"{each.layer}.{each.name}" for each in parameters]

    def after_step(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        self.points.append(f"after_step {step}")
        found = list(parameters)
        self.held["after_step"] = [f"{each.layer}.{each.name}" for each in found]
        self.values.append({f"{each.layer}.{each.name}": each.parameter.detach().clone() for each in found})

    def step_ended(self, step: int, is_last: bool) -> None:
        self.points.append(f"step_ended {step}{' last' * is_last}")

    def of(self, step: int) -> list[str]:
        """The points of one step."""
        begin = self.points.index(f"step_began {step}")
        ends = (at for at, point in enumerate(self.points) if point.startswith(f"step_ended {step}"))
        return self.points[begin + 1 : next(ends)]

    def outside(self, step: int) -> list[str]:
        """Those of them that are no layer's, as single words."""
        return _words(self.of(step))

    def outside_so_far(self) -> list[str]:
        """The same of all steps."""
        return _words(self.points)


def _words(points: list[str]) -> list[str]:
    return [point.split()[0] for point in points if not point.startswith(("entered", "left", "step_"))]


def everything(path: str, module: nn.Module) -> bool:
    return True


@contextlib.contextmanager
def listening(
    wants: Callable[[str, nn.Module], bool] = everything, *, gradients: bool = True, **options: Any
) -> Iterator[tuple[Told, Lifecycle]]:
    """An armed lifecycle, disarmed when the block ends; nothing may have gone wrong in a hook."""
    told = Told()
    lifecycle = Lifecycle(told, wants, gradients=gradients, **options)
    lifecycle.arm()
    try:
        yield told, lifecycle
    finally:
        lifecycle.disarm()
    assert lifecycle.errors == 0, lifecycle.first_error


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


def train(model: nn.Module, steps: int = 2, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()


CALLS = ["entered (root)", *(f"{word} {layer}" for layer in "012" for word in ("entered", "left")), "left (root)"]
FORWARD = ["before_forward", "after_forward"]
STEP = [*FORWARD, "after_backward", "after_step"]
