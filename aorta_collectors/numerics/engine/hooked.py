"""A module whose calls are timed and told of to parts. Nothing of it is attached to the module."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aorta_collectors.numerics.brick import Brick, Timing
from aorta_collectors.numerics.engine.opened import Stack
from aorta_collectors.numerics.engine.passes import AtInput, AtOutput, AtUse, BackwardPasses, Call, Wait
from aorta_collectors.numerics.engine.phases import StepPhases
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.engine.told import Methods, Told
from aorta_collectors.numerics.spans.span import FORWARD
from aorta_collectors.observe.called import Deferring, Kwargs
from aorta_collectors.observe.contributions import SingleUse
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.input_gradient import KeptHooks, uses_input_once, wants_gradient
from aorta_collectors.observe.tensors import tensors_of
from aorta_collectors.observe.trace import in_backward

_is_grad_enabled = torch.is_grad_enabled
_RECOMPUTE = {"recompute": True}


@dataclass
class Hub:
    """What all modules of an engine share.

    Attributes:
        timings: Where durations go; None where nobody wants them.
        ran: Called with when a model's outermost call ended, and what observing had taken by then.
        called: Called with a module at its first call.
        is_closed: Whether this is a fork of the observed process, where nothing is seen.
    """

    timeline: Timeline
    phases: StepPhases
    told: Told
    failures: Failures
    passes: BackwardPasses
    timings: list[Timing] | None
    wait: Wait | None
    ran: Callable[[int, float], None]
    called: Callable[[HookedBrick], None]
    is_closed: bool = False


class Shown(NamedTuple):
    """What the spans of a module are.

    Attributes:
        keep: Whether they are written.
    """

    name: str
    kind: str
    keep: bool


class HookedBrick(Deferring):
    """
    Args:
        shown: What the spans of its calls are.
        inner_shown: What they are inside of another module's call, and what those of its backward are.
        methods: Of parts that are told of `entered`, `left`, `gradient` and `backward_left`.
        ancestors: The modules that enclose it, by path.
        asked: Whether it is part of a model, and not of a loss or of what prepares a batch.
        words: Of the `steps` filter that select it.

    Attributes:
        See `observe.called.Called`, and:
        awaits_gradients: Whether its backward is looked at.
    """

    is_plain_part = False  # a call's time begins before it

    def __init__(
        self,
        brick: Brick,
        module: nn.Module,
        module_path: str,
        hub: Hub,
        methods: tuple[Methods, Methods, Methods, Methods],
        ancestors: frozenset[Brick],
        *,
        shown: Shown,
        inner_shown: Shown,
        awaits_gradients: bool,
        asked: bool,
        words: frozenset[str],
    ) -> None:
        super().__init__(hub.timeline)
        self.module = weakref.ref(module)
        self.path = brick.layer
        self.module_path = module_path
        self.is_part = not brick.is_root
        self.asked = self.unseen = asked
        self.brick = brick
        self.shown = shown
        self.inner_shown = inner_shown
        self.awaits_gradients = awaits_gradients
        self.words = words
        self._on_entered, self._on_left, self.on_gradient, self.on_backward_left = methods
        self._ancestors = ancestors
        self._hub = hub
        self._is_new = True
        self._use = SingleUse() if awaits_gradients and uses_input_once(module) else None
        self._on_leaves = KeptHooks()

    def encloses(self, other: HookedBrick) -> bool:
        """Whether the other lies inside this one, by path."""
        return self.brick in other._ancestors

    def current_step(self) -> int:
        return self._hub.timeline.step

    def before(self, args: tuple[Any, ...], kwargs: Kwargs, began: float) -> None:
        hub = self._hub
        if hub.is_closed:
            return
        try:
            if self._is_new:
                self._is_new = self.unseen = False
                hub.called(self)
            if self._on_entered:
                hub.told.tell(self._on_entered, self.brick, args, kwargs())
            timeline = hub.timeline
            stack = timeline.stack()
            outer = stack[-1] if stack else None
            if outer is not None and type(outer) is not Call:
                outer = next((opened for opened in reversed(stack) if type(opened) is Call), None)
            call = Call(self, outer, hub.passes.is_running and in_backward())
            if self.awaits_gradients and _is_grad_enabled():
                with torch._C.DisableTorchFunctionSubclass():  # a subclass is not to see what is asked of its tensor
                    self._await_inputs(call, args, kwargs)
            if hub.wait is not None:
                hub.wait(self._device(args))
            now = perf_counter_ns()
            timeline.open(call, now, timeline.hook_s + (now * 1e-9 - began))
        except Exception as error:
            hub.failures.add(error)

    def after(self, args: tuple[Any, ...], output: Any, began: float) -> None:
        hub = self._hub
        try:
            if hub.wait is not None:
                hub.wait(self._device(args))
            now = perf_counter_ns()
            timeline = hub.timeline
            call = self._innermost(timeline.stack())
            if call is None:
                return
            spent_s = timeline.hook_s + (now * 1e-9 - began)
            self._ended(call, now, spent_s)
            if output is None:  # as torch tells of an exception
                return
            if self._on_left:
                hub.told.tell(self._on_left, self.brick, args, output)
            if self.brick.is_root and call.outer is None and hub.told.root_left:
                hub.told.tell(hub.told.root_left, self.brick, output)
            if self.awaits_gradients and _is_grad_enabled():
                with torch._C.DisableTorchFunctionSubclass():
                    self._await_outputs(call, args, output)
        except Exception as error:
            hub.failures.add(error)

    def _innermost(self, stack: Stack) -> Call | None:
        """The call that is ending; an exception may have passed by the end of others inside it."""
        for opened in reversed(stack):
            if type(opened) is Call and opened.hooked is self:
                return opened
        return None

    def _ended(self, call: Call, now: int, spent_s: float) -> None:
        hub, start = self._hub, call.start_ns
        hub.timeline.close(call, now, spent_s, _RECOMPUTE if call.is_recompute else None)
        overhead_ns = call.overhead_ns(now, spent_s)
        if hub.timings is not None:
            hub.timings.append(Timing(self.brick, FORWARD, start, now, overhead_ns, call.is_recompute))
        if call.is_recompute:
            return
        if call.outer is None and self.asked:
            hub.phases.forward(start, now, now - start - overhead_ns)
            hub.ran(now, spent_s)
        if self.brick.step_name:
            hub.phases.module_forward(self.brick.step_name, now - start - overhead_ns)

    # -- gradients

    def _await_inputs(self, call: Call, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        """Before the call, which may change its inputs: have the gradients of those looked at."""
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.requires_grad:
            call.version = first._version
        if self._use is not None:
            return  # known when the graph is there
        seen: list[Tensor] = []
        for value in args or tuple((kwargs() or {}).values()):
            if isinstance(value, Tensor) and wants_gradient(value) and not any(value is other for other in seen):
                seen.append(value)
                self._hook_input(call, value)

    def _hook_input(self, call: Call, tensor: Tensor) -> None:
        call.num_inputs += 1
        hook = AtInput(self._hub.passes, call)
        if tensor.grad_fn is None:
            self._on_leaves.put(tensor, hook)  # it may come again: each call would leave one there
        else:
            register: Any = tensor.register_hook
            register(hook)

    def _await_outputs(self, call: Call, args: tuple[Any, ...], output: Any) -> None:
        outputs: Sequence[Tensor] = (output,) if isinstance(output, Tensor) else _floating(output)
        first = args[0] if args else None
        computed = None
        for index, tensor in enumerate(outputs):
            if not tensor.requires_grad or tensor.grad_fn is None or not wants_gradient(tensor):
                continue
            if tensor is first and call.version == tensor._version:
                continue  # handed through: its gradient is another module's
            computed = computed if computed is not None else tensor
            register: Any = tensor.register_hook
            register(AtOutput(self._hub.passes, call, index))
        if self._use is not None and computed is not None and call.version is not None and first is not None:
            found = self._use.find(first, computed)
            if found is not None:
                node, position = found
                call.num_inputs += 1
                node.register_hook(AtUse(self._hub.passes, call, position))
            else:
                self._hook_input(call, first)

    def release(self) -> None:
        self._on_leaves.clear()

    def _device(self, args: tuple[Any, ...]) -> torch.device | None:
        for value in args:
            if isinstance(value, Tensor):
                return value.device
        module = self.module()
        parameter = next(module.parameters(), None) if module is not None else None
        return parameter.device if parameter is not None else None


def _floating(value: Any) -> list[Tensor]:
    return [tensor for _, tensor in tensors_of(value) if tensor.is_floating_point()]
