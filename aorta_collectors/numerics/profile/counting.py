"""Counting operations of whole steps, seldom: once for each kind of input that the model meets.

Counting slows a step down, so it is done in the second step of each new kind of inputs (the first one warms up), and
its numbers stand for all other steps of that kind. A program whose inputs differ in every step has one counted all the
same. What is counted is what the engine's timings time: the model's call, and backward passes, not the optimizer.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.profile.bound import Work
from aorta_collectors.numerics.profile.brick_times import with_self_times
from aorta_collectors.observe.operations import Counts, OperationCounter
from aorta_collectors.observe.tensors import tensors_of_call

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.timeline import Timeline

_MOST_SIGNATURES = 16
# Of those that were seen once: a program whose inputs differ in every step makes one a step.
_MOST_WAITING = 256
# Steps without a kind that comes again; then one is counted at its first sight.
_PATIENCE = 8

#: A module's layer and direction.
Key = tuple[str, str]


@dataclass
class Counted:
    """One kind of step.

    Attributes:
        total: FLOPs of the step.
        dtype: Of most of them.
        by_brick: Of each module itself, without its parts; over all its calls in the step.
        calls: Of each module, in the step that was counted.
        own_s: That these took without its parts and without counting, in seconds; what disturbed them disturbed their
            operations too.
        steps: Steps of this kind, the one that was counted included.
    """

    total: float
    dtype: str | None
    by_brick: dict[Key, Counts]
    calls: dict[Key, int]
    own_s: dict[Key, float]
    steps: int = 0


class _Counter(OperationCounter):  # type: ignore[no-untyped-call]
    """Knows what counting took.

    Attributes:
        spent_s: Seconds by key.
    """

    def __init__(self, key: Callable[[], Hashable], failed: Callable[[Exception], None]) -> None:
        super().__init__(key, failed)
        self.spent_s: dict[Hashable, float] = {}

    def _asked(self) -> Hashable:
        began = perf_counter()
        key = super()._asked()
        self._spent(key, began)
        return key

    def _count(self, key: Hashable, *operation: Any, **named: Any) -> Counts | None:
        began = perf_counter()
        try:
            return super()._count(key, *operation, **named)
        finally:
            self._spent(key, began)

    def _spent(self, key: Hashable, began: float) -> None:
        self.spent_s[key] = self.spent_s.get(key, 0.0) + perf_counter() - began

    def clear(self) -> None:
        self.counts.clear()
        self.spent_s.clear()


class OperationCount(Part):
    """
    Args:
        timeline: Tells which module is running.
        failed: Told of the first error of ours while operations were counted.
    """

    def __init__(self, timeline: Timeline, failed: Callable[[Exception], None] = lambda error: None) -> None:
        self._timeline = timeline
        self._failed = failed
        self._has_failed = False
        self._counter = _Counter(self._running, self._failed_once)
        self._waiting: OrderedDict[Hashable, None] = OrderedDict()
        self._counted: dict[Hashable, Counted] = {}
        self._signature: Hashable = None
        self._is_counting = self._in_backward = False
        self._steps_without = 0
        self._uses_compiler = False

    def stop(self) -> None:
        self._counter.leave()

    def wants(self, brick: Brick) -> bool:
        return brick.is_root

    def step_began(self, step: int) -> None:
        self._counter.leave()  # of a call that was ended by Ctrl-C
        self._signature = None
        self._is_counting = False

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        if self._signature is None:
            self._signature = _signature(brick, args, kwargs)
            self._is_counting = self._is_due(brick)
            if self._is_counting:
                self._counter.clear()
        if self._is_counting:
            self._enter()

    def model_left(self) -> None:
        self._counter.leave()

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        # Inside of a model's call, such as for a gradient penalty, it is on already.
        self._in_backward = self._is_counting and self._enter()

    def backward_ended(self) -> None:
        if self._in_backward:
            self._in_backward = False
            self._counter.leave()

    def _enter(self) -> bool:
        """Whether it was not on, and is now."""
        if torch._C._len_torch_dispatch_stack() or _is_capturing():
            return False
        self._counter.enter()
        return True

    def _is_due(self, brick: Brick) -> bool:
        """Whether the step that begins is to be counted."""
        signature = self._signature
        if signature in self._counted or len(self._counted) >= _MOST_SIGNATURES:
            return False
        # Modes see nothing of what a compiled program does, and the compiler would mind them.
        self._uses_compiler = self._uses_compiler or _is_compiled(brick)
        if self._uses_compiler or torch._C._len_torch_dispatch_stack() or _is_capturing():
            return False
        self._steps_without += 1
        is_known = signature in self._waiting
        if not is_known:
            self._waiting[signature] = None
            if len(self._waiting) > _MOST_WAITING:
                self._waiting.popitem(last=False)
            if self._counted or self._steps_without < _PATIENCE:
                return False
        del self._waiting[signature]
        return True

    def _failed_once(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._failed(error)

    def _running(self) -> Key | None:
        """The module whose own operations these are: the innermost that is open on this thread."""
        for opened in reversed(self._timeline.stack()):
            if opened.layer and opened.direction:
                return opened.layer, opened.direction
        return None

    def step_ended(self, trace: StepTrace) -> None:
        if self._is_counting:
            trace.is_counted = True
            counts, spent_s = dict(self._counter.counts), dict(self._counter.spent_s)
            self._counter.clear()
            calls: dict[Key, int] = {}
            own_s: dict[Key, float] = {}
            for timing, _, self_seconds in with_self_times(trace.timings):
                key = (timing.brick.layer, timing.direction)
                calls[key] = calls.get(key, 0) + 1
                own_s[key] = own_s.get(key, 0.0) + self_seconds
            by_brick = {key: found for key, found in counts.items() if isinstance(key, tuple)}
            for key, seconds in own_s.items():
                least_s = by_brick[key].seconds if key in by_brick else 0.0
                own_s[key] = max(seconds - spent_s.get(key, 0.0), least_s)
            total = float(sum(found.flops for found in counts.values()))
            self._counted[self._signature] = Counted(total, _dtype_of(counts.values()), by_brick, calls, own_s)
            self._is_counting = False
        counted = self._counted.get(self._signature)
        if counted is not None:
            counted.steps += 1

    def flops_of_step(self) -> float | None:
        """Of the step at hand, or just ended: those of a step of its kind. None where none was counted."""
        counted = self._counted.get(self._signature)
        return counted.total if counted is not None else None

    def dtype_of_step(self) -> str | None:
        """Of most of its FLOPs."""
        counted = self._counted.get(self._signature)
        return counted.dtype if counted is not None else None

    def work_of(self, layer: str, direction: str) -> Work | None:
        """What a call of a module computes itself: the mean over the kinds of steps, by how often they came."""
        key = (layer, direction)
        calls = flops = num_bytes = operations = seconds = own_s = 0.0
        largest: Counts | None = None
        for counted in self._counted.values():
            calls += counted.steps * counted.calls.get(key, 0)
            own_s += counted.steps * counted.own_s.get(key, 0.0)
            counts = counted.by_brick.get(key)
            if counts is not None:
                flops += counted.steps * counts.flops
                num_bytes += counted.steps * counts.bytes
                operations += counted.steps * counts.operations
                seconds += counted.steps * counts.seconds
                if largest is None or counts.bytes > largest.bytes:
                    largest = counts
        if not calls:
            return None
        dtype = _name(largest.dtype) if largest is not None else None
        is_known = largest is None or not largest.on_device
        host_s = seconds / calls if is_known else None
        return Work(flops / calls, num_bytes / calls, operations / calls, dtype, host_s, own_s / calls)


def _name(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _dtype_of(all_counts: Iterable[Counts]) -> str | None:
    tally = Counts()
    for counts in all_counts:
        for dtype, flops in counts.flops_by_dtype.items():
            tally.flops_by_dtype[dtype] = tally.flops_by_dtype.get(dtype, 0) + flops
    return _name(tally.dtype)


def _signature(brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Hashable:
    """What tells kinds of steps apart."""
    module = brick.module()
    tensors = tuple((path, tuple(tensor.shape), tensor.dtype) for path, tensor in tensors_of_call(args, kwargs))
    return brick.layer, module is not None and module.training, torch.is_grad_enabled(), tensors


def _is_capturing() -> bool:
    """Whether a CUDA graph is being captured."""
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _is_compiled(brick: Brick) -> bool:
    """Whether torch.compile has been at work in this process, or will be in this model."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters.get("frames"):
        return True
    module = brick.module()
    return module is not None and any(
        type(part).__name__ == "OptimizedModule" or part._compiled_call_impl is not None for part in module.modules()
    )
