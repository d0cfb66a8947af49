"""What a training step does outside of its model's calls: the loss, the backward pass, the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.numerics.engine.opened import Opened
from aorta_collectors.numerics.engine.passes import BackwardPasses, Wait
from aorta_collectors.numerics.engine.phases import StepPhases
from aorta_collectors.numerics.engine.steps import Mark, Steps
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.engine.told import Told
from aorta_collectors.numerics.spans.span import BACKWARD
from aorta_collectors.observe.backward import BackwardWatch
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.optimizers import OptimizerWatch
from aorta_collectors.observe.trace import in_backward


class TrainingSpans:
    """Makes the spans LOSS, BACKWARD and OPTIMIZER, and tells parts.

    Args:
        wait: Waits for the device at each time that is taken; None where nothing is to wait.
        is_running: Whether a model's call is going on.
        is_elsewhere: Whether this is a fork of the observed process.
    """

    def __init__(
        self,
        timeline: Timeline,
        steps: Steps,
        phases: StepPhases,
        passes: BackwardPasses,
        told: Told,
        failures: Failures,
        wait: Wait | None,
        is_running: Callable[[], bool],
        is_elsewhere: Callable[[], bool],
    ) -> None:
        self._timeline = timeline
        self._steps = steps
        self._phases = phases
        self._passes = passes
        self._told = told
        self._failures = failures
        self._wait = wait
        self._is_running = is_running
        self._is_elsewhere = is_elsewhere
        self._forward: Mark | None = None
        self._backward: Opened | None = None
        self._optimizer: Opened | None = None
        self._is_told = False  # whether parts know of the pass that runs
        timed = partial(partial, self._timed)
        self._optimizers = OptimizerWatch(timed(self._optimizer_began), timed(self._optimizer_ended))
        self._backwards = BackwardWatch(
            timed(self._backward_began),
            timed(self._gradients_asked),
            lambda tensors: None,
            timed(self._loss_scaled),
            lambda optimizer, tensors: None,
            lambda: self._optimizers.num_steps,
            ended=timed(self._backward_ended),
        )

    def start(self) -> None:
        self._passes.start()
        self._optimizers.start()
        self._backwards.start()

    def stop(self) -> None:
        self._optimizers.stop()
        self._backwards.stop()
        self._passes.stop()

    @property
    def num_steps(self) -> int:
        """Optimizer steps taken so far."""
        return self._optimizers.num_steps

    def begin_step(self) -> None:
        self._optimizers.forget()
        self._forward = None

    def forward_ended(self, at_ns: int, spent_s: float) -> None:
        """A model's outermost call has ended."""
        self._forward = self._steps.ends(at_ns, spent_s)

    def _timed(self, function: Callable[..., None], *args: Any) -> None:
        """Call one of the functions below, which are hooks of their own; with the time when it began."""
        if self._is_elsewhere():
            return
        began = perf_counter()
        try:
            function(began, *args)
        except Exception as error:
            self._failures.add(error)
        finally:
            self._timeline.hook_s += perf_counter() - began

    def _now(self, began: float) -> tuple[int, float]:
        """The time, and what observing has taken by then, in a hook that began at `began`."""
        if self._wait is not None:
            self._wait.again()
        now = perf_counter_ns()
        return now, self._timeline.hook_s + (now * 1e-9 - began)

    def _opened(self, name: str, direction: str, began: float) -> Opened:
        opened = Opened(name, "phase", "", direction, self._timeline.keeps(name, "phase", ""))
        self._timeline.open(opened, *self._now(began))
        return opened

    def _loss_scaled(self, _began: float, outputs: Any) -> None:
        self._told.tell(self._told.loss_scaled, outputs)

    def _backward_began(self, began: float, tensors: Sequence[Tensor]) -> None:
        timeline, forward = self._timeline, self._forward
        if forward is not None and not self._is_running():
            now, spent_s = self._now(began)
            overhead_ns = min(round((spent_s - forward.spent_s) * 1e9), now - forward.at_ns)
            timeline.add("LOSS", "phase", forward.at_ns, now, overhead_ns=overhead_ns)
            self._phases.add("loss", now - forward.at_ns - overhead_ns)
        self._forward = None
        self._told.tell(self._told.backward_began, tensors)
        self._begin_pass(began)
        self._is_told = True

    def _gradients_asked(self, began: float, _tensors: Sequence[Tensor]) -> None:
        """Of torch.autograd.grad, or with the gradients that a pass is given to start from."""
        if self._backward is None:
            self._begin_pass(began)

    def _begin_pass(self, began: float) -> None:
        if self._is_running():  # such as a force, the gradient of an energy
            self._passes.begin(None)
        else:
            self._steps.has_backward = True
            self._backward = self._opened("BACKWARD", BACKWARD, began)
            self._passes.begin(self._backward)

    def _backward_ended(self, began: float) -> None:
        now, spent_s = self._now(began)
        self._passes.end(now, spent_s)
        opened, self._backward = self._backward, None
        if opened is not None:
            self._timeline.close(opened, now, spent_s)
            self._phases.backward(opened.start_ns, now, opened.own_ns(now, spent_s))
            self._steps.ends(now, spent_s)
        is_told, self._is_told = self._is_told, False
        if is_told:
            self._told.tell(self._told.backward_ended)

    def _optimizer_began(self, began: float, optimizer: torch.optim.Optimizer) -> None:
        self._told.tell(self._told.optimizer_began, optimizer)
        self._optimizer = self._opened("OPTIMIZER", "", began)

    def _optimizer_ended(self, began: float, optimizer: torch.optim.Optimizer) -> None:
        now, spent_s = self._now(began)
        opened, self._optimizer = self._optimizer, None
        if opened is not None:
            self._timeline.close(opened, now, spent_s)
            if not in_backward():  # there it is part of that
                self._phases.add("opt", opened.own_ns(now, spent_s))
                self._steps.ends(now, spent_s)
        self._told.tell(self._told.optimizer_ended, optimizer)
