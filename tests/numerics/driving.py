"""A training loop that tells parts what the engine would, without it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.spans.lamport import LamportClock


def timeline() -> Timeline:
    return Timeline(Config(), LamportClock())


def brick_of(module: nn.Module, number: int = 0) -> Brick:
    return Brick(weakref.ref(module), "(root)", type(module).__name__, "", None, False, True, None, number)


def forward(part: Part, module: nn.Module, *args: Any, number: int = 0, **kwargs: Any) -> Any:
    """A call of a root, as the part is told of it; each has a number of its own."""
    brick = brick_of(module, number)
    wanted = part.wants(brick)
    if wanted:
        part.entered(brick, args, kwargs)
    result = module(*args, **kwargs)
    if wanted:
        part.left(brick, args, result)
        part.root_left(brick, result)
    return result


def backward(part: Part, loss: torch.Tensor, scaler: torch.amp.GradScaler | None = None) -> None:
    if scaler is not None:
        part.loss_scaled(loss)
        loss = scaler.scale(loss)
    part.backward_began([loss])
    loss.backward()
    part.backward_ended()


class Steps:
    """Counts steps and ends them: `began` before the forward of each, then what the step does, then `ended`."""

    def __init__(self, parts: Sequence[Part], timeline: Timeline) -> None:
        self.number = 0
        self.traces: list[StepTrace] = []
        self._parts = parts
        self._timeline = timeline
        self._since_ns = time.perf_counter_ns()

    def began(self) -> None:
        self.number += 1
        self._timeline.step = self.number
        for part in self._parts:
            part.step_began(self.number)

    def ended(self, kind: str = "training", **told: Any) -> StepTrace:
        now_ns = time.perf_counter_ns()
        trace = StepTrace(self.number, kind, start_ns=self._since_ns, end_ns=now_ns, **told)
        self._since_ns = now_ns
        for part in self._parts:
            part.step_ended(trace)
        self.traces.append(trace)
        return trace
