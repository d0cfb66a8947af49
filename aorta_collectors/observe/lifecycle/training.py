"""The points of a training step outside of its model's calls: backward passes and optimizers' steps have ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.backward import BackwardWatch
from aorta_collectors.observe.lifecycle.listener import OwnParameter
from aorta_collectors.observe.lifecycle.telling import Telling
from aorta_collectors.observe.optimizers import OptimizerWatch
from aorta_collectors.observe.trace import in_backward


class TrainingPoints:
    """
    Args:
        parameters: Those of all models, but for those last called in a thread that the function given says True of.
        is_elsewhere: Whether this is a fork of the observed process.

    Attributes:
        num_steps: Optimizer steps taken so far.
        passes, stepped: What has come since `take`, for a graph that is captured: backward passes, and parameters, by
            id(), of optimizers that stepped.
    """

    def __init__(
        self,
        telling: Telling,
        parameters: Callable[[Callable[[int], bool]], Iterator[OwnParameter]],
        is_elsewhere: Callable[[], bool],
    ) -> None:
        self._telling = telling
        self._parameters = parameters
        self._is_elsewhere = is_elsewhere
        # By thread: exceptions that were being handled when a pass began that has not ended, and whether one ever did.
        self._passes: dict[int, BaseException | None] = {}
        self._trainers: set[int] = set()
        self._in_pass: set[int] | None = None
        self.num_steps = 0
        self.passes = 0
        self.stepped: list[frozenset[int]] = []
        timed = partial(partial, self._timed)
        self._optimizers = OptimizerWatch(timed(self._optimizer_begins), timed(self._optimizer_ended))
        self._backwards = BackwardWatch(
            timed(self._backward_began),
            lambda tensors: None,
            lambda tensors: None,
            lambda outputs: None,
            lambda optimizer, tensors: None,
            lambda: self._optimizers.num_steps,
            ended=timed(self._backward_ended),
        )

    def start(self) -> None:
        self._optimizers.start()
        self._backwards.start()

    def stop(self) -> None:
        self._optimizers.stop()
        self._backwards.stop()

    def begin_step(self) -> None:
        self._optimizers.forget()
        self._passes.pop(get_ident(), None)
        if not self._passes:
            self._in_pass = None

    def take(self) -> tuple[int, list[frozenset[int]]]:
        """What a graph that was captured holds: backward passes, and parameters that optimizers have stepped."""
        taken = self.passes, self.stepped
        self.passes, self.stepped = 0, []
        return taken

    def again(self, passes: int, stepped: list[frozenset[int]]) -> None:
        """A replay has done this."""
        for _ in range(passes):
            self._tell_backward()
        for parameters in stepped:
            self._tell_step(parameters)

    def _timed(self, function: Callable[..., None], *args: Any) -> None:
        telling = self._telling
        if not (self._is_elsewhere() or telling.is_closed) and (telling.step or telling.is_capturing):
            telling.cost.timed(telling.failures.guarded, function, *args)

    # -- backward passes

    def _backward_began(self, _tensors: Any) -> None:
        self._telling.after_compiled_forward()
        thread = get_ident()
        self._trainers.add(thread)
        self._passes[thread] = sys.exc_info()[1]

    def _backward_ended(self) -> None:
        """Of torch.autograd.grad too, which fills in no gradients."""
        thread = get_ident()
        if thread not in self._passes:
            return
        handled = self._passes.pop(thread)
        in_pass, self._in_pass = self._in_pass, None
        # An exception that is on its way now and was not before has ended it.
        if sys.exc_info()[1] is not handled:
            return
        self._tell_backward()
        if in_pass is not None:
            self._tell_step(frozenset(in_pass))

    def _tell_backward(self) -> None:
        telling = self._telling
        self.passes += telling.is_capturing
        if not telling.is_silent:
            telling.tell(telling.listener.after_backward, telling.step, self._parameters(self._is_trained_elsewhere))

    def _is_trained_elsewhere(self, thread: int) -> bool:
        """Whether models that a thread called last are trained there, and not here.

        Their gradients may be put in place at this moment: to ask a parameter for its own would be to read a pointer
        that another thread writes, which ends the process.
        """
        return thread in self._trainers and thread != get_ident()

    # -- optimizers

    def _optimizer_begins(self, _optimizer: torch.optim.Optimizer) -> None:
        self._telling.after_compiled_forward()

    def _optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        if _was_skipped(optimizer):
            return
        held = frozenset(id(parameter) for group in optimizer.param_groups for parameter in group["params"])
        if in_backward() and self._passes:
            # One for each parameter, say, as soon as its gradient is there: all together are one step.
            self._in_pass = (self._in_pass or set()) | held
        else:
            self._tell_step(held)

    def _tell_step(self, held: frozenset[int]) -> None:
        self.num_steps += 1
        telling = self._telling
        if telling.is_capturing:
            self.stepped.append(held)
        if not telling.is_silent:
            telling.tell(telling.listener.after_step, telling.step, self._held(held))

    def _held(self, held: frozenset[int]) -> Iterator[OwnParameter]:
        """Of an optimizer that steps copies in higher precision, or shards, nothing tells which are whose: all."""
        has_any = False
        for each in self._parameters(lambda thread: False):
            if id(each.parameter) in held:
                has_any = True
                yield each
        if not has_any:
            yield from self._parameters(lambda thread: False)


def _was_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a GradScaler has a fused optimizer skip, which is called all the same. Only known where no device is."""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, Tensor) and found.device.type == "cpu" and bool(found)
