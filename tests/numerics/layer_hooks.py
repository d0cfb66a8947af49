"""The calls of a model handed to a part by plain hooks, as the engine hands them over."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.observe.tensors import tensors_of


def bricks_of(model: nn.Module, named: dict[str, str] | None = None) -> dict[nn.Module, Brick]:
    """A brick for each module.

    Args:
        named: The named step by path.
    """
    bricks = {}
    for number, (path, module) in enumerate(model.named_modules()):
        bricks[module] = Brick(
            weakref.ref(module),
            path or "(root)",
            type(module).__name__,
            (named or {}).get(path, ""),
            None,
            not list(module.children()),
            not path,
            None,
            number,
        )
    return bricks


class Driven:
    """A part that watches a model, and the steps that it has added to.

    Attributes:
        traces: One for each step that is over.
    """

    def __init__(self, part: Part, model: nn.Module, named: dict[str, str] | None = None) -> None:
        self.part = part
        self.model = model
        self.traces: list[StepTrace] = []
        self._handles: list[Any] = []
        for module, brick in bricks_of(model, named).items():
            if part.wants(brick):
                self._watch(module, brick)

    @contextlib.contextmanager
    def step(self, *, last: bool = False) -> Iterator[None]:
        """The program's step goes inside; the step ends also where that is ended."""
        trace = StepTrace(len(self.traces) + 1, is_last=last)
        self.traces.append(trace)
        self.part.step_began(trace.step)
        try:
            yield
        finally:
            self.part.step_ended(trace)

    def lines(self) -> list[dict[str, Any]]:
        return [line for trace in self.traces for line in trace.stats]

    def line(self, layer: str, direction: str = "forward", step: int = 1, path: str = "") -> dict[str, Any]:
        """The one of a tensor in a step."""
        [found] = [
            line
            for line in self.lines()
            if (line["layer"], line["direction"], line["step"], line["tensor_path"]) == (layer, direction, step, path)
        ]
        return found

    def release(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _watch(self, module: nn.Module, brick: Brick) -> None:
        part = self.part

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            part.entered(brick, args, kwargs)

        def after(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            part.left(brick, args, result)
            floating = [tensor for _, tensor in tensors_of(result) if tensor.is_floating_point()]
            for index, tensor in enumerate(floating):
                if tensor.requires_grad:
                    tensor.register_hook(_told(part, brick, index))

        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, with_kwargs=True))


def _told(part: Part, brick: Brick, index: int) -> Any:
    def hook(grad: Tensor) -> None:
        part.gradient(brick, index, grad)

    return hook


def small_model() -> nn.Sequential:
    """Of a fixed seed: 4 values, 8 hidden ones, 2 values."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
