"""Telling parts: only those that override a method are called, and what they raise stays here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import profiler

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import LineStopped, Part
from aorta_collectors.observe.failures import Failures

Methods = tuple[Callable[..., None], ...]

#: What parts do while torch's profiler runs, ours or the program's, stands in its trace under this name.
OBSERVING = "aorta_collectors: observing"


class Told:
    """The parts of an engine.

    Attributes:
        stopped: What a part has ended the program with; None as long as none has.
    """

    def __init__(self, parts: Sequence[Part], failures: Failures) -> None:
        self._parts = tuple(parts)
        self._failures = failures
        self.stopped: LineStopped | None = None
        self.step_began = self._all(Part.step_began)
        self.root_left = self._all(Part.root_left)
        self.model_left = self._all(Part.model_left)
        self.loss_scaled = self._all(Part.loss_scaled)
        self.backward_began = self._all(Part.backward_began)
        self.backward_ended = self._all(Part.backward_ended)
        self.optimizer_began = self._all(Part.optimizer_began)
        self.optimizer_ended = self._all(Part.optimizer_ended)
        self.step_ended = self._all(Part.step_ended)

    def _all(self, method: Callable[..., Any]) -> Methods:
        return tuple(getattr(part, method.__name__) for part in self._parts if _overrides(part, method))

    def of(self, brick: Brick) -> tuple[Methods, Methods, Methods, Methods]:
        """Who is told of its calls: of `entered`, `left`, `gradient` and `backward_left`."""
        methods = (Part.entered, Part.left, Part.gradient, Part.backward_left)
        overriding = [part for part in self._parts if any(_overrides(part, method) for method in methods)]
        wanting = {part for part in overriding if self._wants(part, brick)}
        entered, left, gradient, backward_left = (
            tuple(getattr(part, method.__name__) for part in overriding if part in wanting and _overrides(part, method))
            for method in methods
        )
        return entered, left, gradient, backward_left

    def _wants(self, part: Part, brick: Brick) -> bool:
        try:
            return part.wants(brick)
        except Exception as error:
            self._failures.add(error)
            return False

    def tell(self, methods: Methods, *args: Any) -> None:
        """Call each.

        Raises:
            LineStopped: One of them has ended the program.
        """
        if methods and profiler._is_profiler_enabled:
            with profiler.record_function(OBSERVING):
                self._tell(methods, args)
        else:
            self._tell(methods, args)

    def _tell(self, methods: Methods, args: tuple[Any, ...]) -> None:
        with torch._C.DisableTorchFunctionSubclass():  # a subclass is not to see what is asked of its tensor
            for method in methods:
                try:
                    method(*args)
                except LineStopped as stop:
                    self.stopped = stop
                    raise
                except Exception as error:
                    self._failures.add(error)

    def start(self) -> None:
        self.tell(tuple(part.start for part in self._parts))

    def stop(self) -> None:
        self.tell(tuple(part.stop for part in self._parts))


def _overrides(part: Part, method: Callable[..., Any]) -> bool:
    return getattr(type(part), method.__name__) is not method
