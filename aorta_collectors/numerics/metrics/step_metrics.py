"""A line for each step: how training goes and what it costs, to schemas/numerics.step.json and on stderr."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from aorta_collectors.numerics.arriving import Later, as_json
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.numerics.metrics.gradient_norm import GradientNorm
from aorta_collectors.numerics.metrics.intervals import counts, own_time_ns
from aorta_collectors.numerics.metrics.losses import Losses
from aorta_collectors.numerics.metrics.memory import MemoryMeter
from aorta_collectors.numerics.metrics.metrics_total import MetricsTotal
from aorta_collectors.numerics.metrics.step_line import Pace, step_line
from aorta_collectors.numerics.metrics.throughput import Batch, batch_of
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.observe.modes import out_of_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aorta_collectors.numerics.brick import Brick
    from aorta_collectors.numerics.engine.timeline import Timeline

# Steps whose numbers have not come from a device: normally one. Of more than this the oldest is waited for.
_MOST_WAITING = 64
# For those of the last steps, in seconds: a process that is told to end must not wait for a device that hangs.
_LAST_WAIT_S = 10.0
_RECENT = 0.1  # weight of the last step in the mean that the remaining time follows from
_MEGA = 10**6
_NS_IN_MS = 10**6


class _Waiting(NamedTuple):
    """A step that is over, with what may still be on its way."""

    line: dict[str, Any]
    loss: Later
    norm: Later
    counts: bool
    is_due: bool


class StepMetrics(Part):
    """Makes the lines.

    Args:
        timeline: Gets the time that observing takes.
        warn: Told what could not be measured.
        say: Told the lines for stderr, without a prefix.
        remaining: Batches that the data loader at hand has left; None where that is not known.
        flops: Floating-point operations of the step that is ending; None where they were not counted.
        peak: Of a matrix product on this machine, floating-point operations a second; None where it was not measured.
    """

    def __init__(
        self,
        config: Config,
        timeline: Timeline,
        warn: Callable[[str], None],
        *,
        say: Callable[[str], None],
        remaining: Callable[[], int | None] = lambda: None,
        flops: Callable[[], float | None] = lambda: None,
        peak: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._interval = config.interval
        self._say = say
        self._remaining = remaining
        self._flops = flops
        self._peak = peak
        self._losses = Losses()
        self._norm = GradientNorm(Guard(timeline, warn))
        self._total = MetricsTotal()
        self._pace = Pace(time.monotonic)
        self._memory: MemoryMeter | None = None
        self._batch: Batch | None = None
        self._left: int | None = None  # batches after that of this step
        self._mean_s: float | None = None
        self._waiting: deque[_Waiting] = deque()
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()

    def start(self) -> None:
        self._norm.start()

    def stop(self) -> None:
        self._norm.stop()

    def wants(self, brick: Brick) -> bool:
        return brick.is_root

    def step_began(self, step: int) -> None:
        self._losses.forget()

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        # Of several models in a step, the first tells what it works on.
        if self._batch is None:
            self._batch = out_of_modes(batch_of, args, kwargs)
            self._left = self._remaining()
            device = _device_of(brick)
            if self._memory is None or self._memory.device != device:
                self._memory = MemoryMeter(device)

    def loss_scaled(self, outputs: Any) -> None:
        self._losses.scaled(outputs)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        self._losses.began(tensors)

    def optimizer_began(self, optimizer: torch.optim.Optimizer) -> None:
        self._norm.optimizer_began(optimizer)

    def step_ended(self, trace: StepTrace) -> None:
        line = self._line(trace)
        is_due = trace.step % self._interval == 0
        self._waiting.append(_Waiting(line, self._losses.take(), self._norm.take(), counts(trace), is_due))
        until = time.monotonic() + _LAST_WAIT_S if trace.is_last else 0.0
        while self._waiting and (self._has_arrived(self._waiting[0], until) or trace.is_last):
            self._complete(self._waiting.popleft(), trace)

    def _line(self, trace: StepTrace) -> dict[str, Any]:
        """What is known of the step by now."""
        own_ns = own_time_ns(trace)
        own_s = own_ns * 1e-9
        batch, left = self._batch or Batch(), self._left
        self._batch = self._left = None
        if not trace.is_counted and own_s:
            self._mean_s = own_s if self._mean_s is None else self._mean_s + _RECENT * (own_s - self._mean_s)
        flops, peak = self._flops(), self._peak()
        memory = self._memory.read() if self._memory is not None else None
        return {
            "step": trace.step,
            "kind": trace.kind,
            "start_ns": trace.start_ns + self._epoch_ns,
            "step_ms": own_ns / _NS_IN_MS,
            "phases_ms": {name: duration_ns / _NS_IN_MS for name, duration_ns in trace.phases_ns.items()},
            "loss": None,
            "samples": batch.samples,
            "tokens": batch.tokens,
            "samples_per_s": _per(batch.samples, own_s),
            "tokens_per_s": _per(batch.tokens, own_s),
            "flops": flops,
            "mfu": _per(flops, own_s * peak) if peak is not None else None,
            "grad_norm": None,
            "memory_used_mb": _per(memory.used, _MEGA) if memory is not None else None,
            "memory_total_mb": _per(memory.total, _MEGA) if memory is not None else None,
            "eta_s": None if left is None or self._mean_s is None else left * self._mean_s,
            "is_counted": trace.is_counted,
        }

    def _has_arrived(self, waiting: _Waiting, until: float) -> bool:
        while not (waiting.loss.is_there and waiting.norm.is_there):
            if len(self._waiting) > _MOST_WAITING:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True

    def _complete(self, waiting: _Waiting, trace: StepTrace) -> None:
        line = waiting.line
        # Of the last step, a device that hangs may owe them for good.
        is_there = not trace.is_last or (waiting.loss.is_there and waiting.norm.is_there)
        if is_there:
            line["loss"] = as_json(waiting.loss.value)
            line["grad_norm"] = as_json(waiting.norm.value)
        if line["step"] == trace.step:
            trace.metrics = line
        else:
            trace.past_metrics.append(line)
        self._total.add(line, counts=waiting.counts)
        if self._pace.allows(is_due=waiting.is_due):
            self._say(step_line(line))

    def fields(self) -> Mapping[str, Any]:
        peak = self._memory.peak() if self._memory is not None else None
        return {"step_metrics": {**self._total.fields(), "memory_peak_mb": _per(peak, _MEGA)}}


def _device_of(brick: Brick) -> torch.device:
    """Where most models have all of theirs."""
    module = brick.module()
    parameter = next(module.parameters(), None) if module is not None else None
    return torch.device("cpu") if parameter is None else parameter.device


def _per(amount: float | None, divisor: float) -> float | None:
    return None if amount is None or not divisor else amount / divisor
