"""Backward passes: when the part of each module's call in one begins and ends.

It begins when the gradient of an output has been computed, and ends when the gradients of all its inputs have. A module
whose inputs need none, such as an embedding, ends where the next one begins that it does not enclose, or with the pass.
"""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from aorta_collectors.numerics.brick import Timing
from aorta_collectors.numerics.engine.opened import Opened, Stack
from aorta_collectors.numerics.engine.phases import StepPhases
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.engine.told import Told
from aorta_collectors.numerics.spans.span import BACKWARD, FORWARD
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.modes import out_of_modes

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.hooked import HookedBrick


class Call(Opened):
    """One call of a module: while it runs, and as long as autograd may come back to it. Holds no tensor.

    Attributes:
        outer: The call of a module inside which it was made, or None.
        is_recompute: Whether activation checkpointing made it, inside of a backward pass.
        version: Of its first input when it began; None where that needs no gradient.
        num_inputs: Gradients of inputs that tell when its backward is over.
        backward: Its part in the pass that runs, while it is open.
        in_pass, missing: Of the last pass that it was part of: its number, and how many of these gradients it lacks.
        over_in: The number of the last pass in which all of them were.
    """

    __slots__ = (
        "backward",
        "hooked",
        "in_pass",
        "is_recompute",
        "missing",
        "num_inputs",
        "outer",
        "over_in",
        "version",
    )

    def __init__(self, hooked: HookedBrick, outer: Call | None, is_recompute: bool) -> None:
        shown = hooked.shown if outer is None else hooked.inner_shown
        super().__init__(shown.name, shown.kind, hooked.path, FORWARD, shown.keep)
        self.hooked = hooked
        self.outer = outer
        self.is_recompute = is_recompute
        self.version: int | None = None
        self.num_inputs = 0
        self.backward: _Backward | None = None
        self.in_pass = self.missing = self.over_in = 0


class _Backward(Opened):
    """A call's part in a backward pass."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        hooked = call.hooked
        shown = hooked.inner_shown
        super().__init__(shown.name, shown.kind, hooked.path, BACKWARD, shown.keep)
        self.call = call


class BackwardPasses:
    """The backward passes of a process, one after another.

    Args:
        timings: Where the durations of modules go; None where nobody wants them.
        waits: Whether to wait for the device at each time that is taken.

    Attributes:
        is_running: Whether one is.
    """

    def __init__(
        self,
        timeline: Timeline,
        phases: StepPhases,
        told: Told,
        failures: Failures,
        timings: list[Timing] | None,
        waits: Wait | None,
    ) -> None:
        self._timeline = timeline
        self._phases = phases
        self._told = told
        self._failures = failures
        self._timings = timings
        self._wait = waits
        self._number = 0
        self._open: dict[_Backward, None] = {}
        self._closed = False
        self._around: Opened | None = None
        self.is_running = False

    def begin(self, around: Opened | None) -> None:
        """A pass has begun: `around`, or one that is part of a model's own computation."""
        self._number += 1
        self._around = around
        self.is_running = True

    def end(self, at_ns: int, spent_s: float) -> None:
        """It has ended."""
        self.is_running = False
        for opened in list(self._open):
            self._close(opened, at_ns, spent_s)
        self._around = None

    def stop(self) -> None:
        """Graphs that live on must not be looked at any more."""
        self._closed = True
        self._open.clear()

    def start(self) -> None:
        self._closed = False

    def arrived(self, call: Call, index: int, grad: Tensor) -> None:
        """The gradient of an output of `call` has been computed."""
        if self._closed or is_compiling():
            return
        began = perf_counter()
        try:
            out_of_modes(self._arrived, call, index, grad, began)
        except Exception as error:
            self._failures.add(error)
        finally:
            self._timeline.hook_s += perf_counter() - began

    def _arrived(self, call: Call, index: int, grad: Tensor, began: float) -> None:
        timeline, hooked = self._timeline, call.hooked
        if self._wait is not None:
            self._wait(grad.device)
        begins = call.backward is None and call.over_in != self._number
        if begins:
            now = perf_counter_ns()
            spent_s = timeline.hook_s + (now * 1e-9 - began)
            stack = timeline.stack()
            while stack and type(stack[-1]) is _Backward and not stack[-1].call.hooked.encloses(hooked):
                self._close(stack[-1], now, spent_s)
        if hooked.on_gradient:
            self._told.tell(hooked.on_gradient, hooked.brick, index, grad)
        if begins:
            outer, around = call.outer, []
            while outer is not None:
                if outer.backward is None and outer.hooked.awaits_gradients and outer.hooked.encloses(hooked):
                    around.append(outer)
                outer = outer.outer
            start = perf_counter_ns()
            spent_s = timeline.hook_s + (start * 1e-9 - began)
            for outer in reversed(around):
                self._begin(outer, start, spent_s)
            self._begin(call, start, spent_s)

    def _begin(self, call: Call, at_ns: int, spent_s: float) -> None:
        if call.in_pass != self._number:
            call.in_pass = self._number
            call.missing = call.num_inputs
        call.backward = opened = _Backward(call)
        self._open[opened] = None
        self._timeline.open(opened, at_ns, spent_s, self._around)

    def passed_on(self, call: Call, device: torch.device | None) -> None:
        """The gradient of one of the inputs of `call` has been computed."""
        if self._closed or is_compiling() or call.in_pass != self._number:
            return
        began = perf_counter()
        try:
            call.missing -= 1
            if call.missing <= 0:
                call.over_in = self._number
                if call.backward is not None:
                    if self._wait is not None and device is not None:
                        self._wait(device)
                    now = perf_counter_ns()
                    out_of_modes(self._close, call.backward, now, self._timeline.hook_s + (now * 1e-9 - began))
        except Exception as error:
            self._failures.add(error)
        finally:
            self._timeline.hook_s += perf_counter() - began

    def _close(self, opened: _Backward, at_ns: int, spent_s: float) -> None:
        timeline = self._timeline
        stack = opened.stack
        if stack is None:  # what enclosed it has ended by an exception
            opened.call.backward = None
            self._open.pop(opened, None)
        else:
            # Parts of it that are still open end with it.
            while stack and stack[-1] is not opened:
                inner = stack[-1]
                if type(inner) is _Backward:
                    self._end(inner, stack, at_ns, spent_s)
                else:
                    timeline.close(inner, at_ns, spent_s)
            self._end(opened, stack, at_ns, spent_s)

    def _end(self, opened: _Backward, stack: Stack, at_ns: int, spent_s: float) -> None:
        call, hooked = opened.call, opened.call.hooked
        call.backward = None
        self._open.pop(opened, None)
        self._timeline.close(opened, at_ns, spent_s)
        overhead_ns = opened.overhead_ns(at_ns, spent_s)
        if self._around is not None:
            self._phases.module_backward(hooked.brick.step_name, at_ns - opened.start_ns - overhead_ns)
        if self._timings is not None:
            self._timings.append(Timing(hooked.brick, BACKWARD, opened.start_ns, at_ns, overhead_ns))
        if hooked.on_backward_left:
            self._told.tell(hooked.on_backward_left, hooked.brick)


class Wait:
    """Waits for a device, so that what runs there has a duration on the host's clock. That wait is no overhead."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._device: torch.device | None = None

    def __call__(self, device: torch.device | None) -> None:
        if device is None or device.type in ("cpu", "meta"):
            return
        self._device = device
        began = perf_counter()
        # A capture records what is to run later: nothing is to be waited for, and waiting would end it.
        if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            accelerator: Any = getattr(torch, "accelerator", None) or torch.cuda  # the first since torch 2.6
            accelerator.synchronize(device)
        self._timeline.hook_s -= perf_counter() - began

    def again(self) -> None:
        """For the same one as the last time."""
        self(self._device)


class AtOutput:
    """A hook on an output of a call. It refers to no tensor."""

    __slots__ = ("_call", "_index", "_passes")
    __torch_unserializable__ = True

    def __init__(self, passes: BackwardPasses, call: Call, index: int) -> None:
        self._passes = passes
        self._call = call
        self._index = index

    def __call__(self, grad: Tensor) -> None:
        self._passes.arrived(self._call, self._index, grad)


class AtInput:
    """A hook on an input of a call."""

    __slots__ = ("_call", "_passes")
    __torch_unserializable__ = True

    def __init__(self, passes: BackwardPasses, call: Call) -> None:
        self._passes = passes
        self._call = call

    def __call__(self, grad: Tensor) -> None:
        self._passes.passed_on(self._call, grad.device)


class AtUse:
    """A hook on the node that computes the gradient of an input that the call used once."""

    __slots__ = ("_call", "_passes", "_position")

    def __init__(self, passes: BackwardPasses, call: Call, position: int) -> None:
        self._passes = passes
        self._call = call
        self._position = position

    def __call__(self, grad_inputs: Any, _grad_outputs: Any) -> None:
        grad = grad_inputs[self._position]
        self._passes.passed_on(self._call, grad.device if isinstance(grad, Tensor) else None)
