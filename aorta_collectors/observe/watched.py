"""What is looked at when a module is called: its inputs, the gradients of those, and its outputs."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.called import Deferring, Kwargs
from aorta_collectors.observe.input_gradient import uses_input_once, wants_gradient
from aorta_collectors.observe.input_hooks import GradientEye, InputGradients
from aorta_collectors.observe.makers import computed_infinity
from aorta_collectors.observe.module_sites import ModuleSites
from aorta_collectors.observe.observation import Moment, Moments
from aorta_collectors.observe.tensors import tensors_of, tensors_of_call
from aorta_collectors.observe.trace import Call, CallTrace, Mark, in_backward

_BUFFER_NUMEL = 1_000_000


class Eye(GradientEye, Protocol):
    """What watched modules report to (the observer)."""

    @property
    def moments(self) -> Moments: ...
    @property
    def calls_traced(self) -> CallTrace | None: ...
    def bounds_of(self, layer: str) -> tuple[float, float] | None: ...
    def followed_at(self, layer: str, entries: tuple[int, ...]) -> None: ...


class _Running:
    """A call that has begun.

    Attributes:
        used_once: Of its inputs, with their paths, those that the module is known to use once.
        shared: Those that another module takes in as well.
    """

    __slots__ = ("call", "moment", "shared", "used_once")

    def __init__(self, moment: Moment, call: Call | None) -> None:
        self.moment = moment
        self.call = call
        self.used_once: list[tuple[Tensor, str]] = []
        self.shared: list[Tensor] = []


class WatchedModule(Deferring):
    """The sites of one module. Nothing of it is attached to the module, and no method raises.

    Attributes:
        module: A weak reference.
        path: Layer name.
        module_path: The same without what wrappers add.
        is_part: Whether it is part of a larger one, not a root.
        asked: Whether records of it were asked for; else it is looked at for the origin of a bad value alone.
        is_plain_part: Whether it is, and all there is to do before a call with one argument can wait until that ended.
        unseen: Whether its calls are to be looked at, and none has been so far.
    """

    def __init__(
        self,
        eye: Eye,
        module: nn.Module,
        path: str,
        module_path: str,
        channels: frozenset[str],
        follow: tuple[int, ...] = (),
        *,
        is_part: bool = True,
    ) -> None:
        super().__init__(eye.cost)
        self.module = weakref.ref(module)
        self.path = path
        self.is_part = is_part
        self.asked = bool(channels or follow)
        self.unseen = not channels.isdisjoint({"input", "act", "igrad"})
        self.module_path = module_path
        self._eye = eye
        self._moments = eye.moments
        self._observe = eye.reader.observe
        self._trace = eye.calls_traced
        self._follow = follow
        self._sites = ModuleSites(module, path, module_path, channels, eye.bounds_of(path) if channels else None)
        self._step = 0
        # Calls within the step, and of those the ones that activation checkpointing made.
        self._invocations = [0, 0]
        self._running: list[_Running] = []
        buffers = [buffer for buffer in module.buffers(recurse=False) if buffer is not None]
        self._uses_once = uses_input_once(module)
        # Of these, the three that are used on masked scores.
        self._takes_no_mask = self._uses_once and not isinstance(module, (nn.Softmax, nn.Sigmoid, nn.ReLU))
        self._gradients = InputGradients(eye, used_once=self._uses_once)
        self._masked = any(not is_lazy(buffer) and buffer.dtype is torch.bool for buffer in buffers)
        self._has_buffers = any(is_lazy(buffer) or buffer.is_floating_point() for buffer in buffers)
        self._sees_outputs = self._trace is not None or "act" in channels
        self._sees_inputs = self._trace is not None or "input" in channels
        self._sees_gradients = "igrad" in channels
        # Not where a call may enclose another one of the same module, which would be over first.
        self._can_wait = not self._sees_inputs and self._uses_once
        self.is_plain_part = is_part and self._can_wait

    def before(self, args: tuple[Any, ...], kwargs: Kwargs, began: float = 0.0) -> None:
        """Look at the inputs. Need not be called where the module `is_plain_part` and has no hooks of its own."""
        try:
            with torch._C.DisableTorchFunctionSubclass():  # a subclass is not to see what is asked of its tensor
                self._before(args, kwargs)
        except Exception as error:
            self._eye.failed(error)

    def _before(self, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        moment = self._next_moment()
        trace = self._trace
        call = None
        if trace is not None:
            call = trace.enter(self.path, self.module_path, moment.invocation, moment.recompute)
            call.has_mask = self._masked
            call.takes_no_mask = self._takes_no_mask
        running = _Running(moment, call)
        self._running.append(running)
        if not self._sees_inputs and not self._sees_gradients:
            return
        # Such a module takes one tensor and nothing else.
        is_plain = self._uses_once and len(args) == 1 and isinstance(args[0], Tensor)
        for path, tensor in (("[0]", args[0]),) if is_plain else tensors_of_call(args, kwargs(), self._cut):
            self.unseen = False
            if self._sees_inputs:
                index = self._observe(self._sites.of("fwd", "input", path), tensor, moment)
                if call is not None and trace is not None and index is not None:
                    call.inputs.append(index)
                    if tensor.grad_fn is not None:
                        call.computed.append(index)
                    call.has_mask = call.has_mask or tensor.dtype is torch.bool
                    trace.mark(index, Mark(call, computed=self._says_how(index, tensor)))
            if wants_gradient(tensor):
                self._await_gradient(tensor, path, bool(args) and args[0] is tensor, running)

    def _await_gradient(self, tensor: Tensor, path: str, is_first: bool, running: _Running) -> None:
        """Have the gradient of an input looked at, now or when the module has used it."""
        trace, call = self._trace, running.call
        if self._uses_once and is_first:
            running.used_once.append((tensor, path))
            return
        if self._sees_gradients:
            site = self._sites.of("bwd", "igrad", path, is_flow=is_first)
            self._gradients.at_tensor(tensor, site, running.moment)
        if call is not None and trace is not None and trace.consumed(call, tensor):
            running.shared.append(tensor)

    def after(self, args: tuple[Any, ...], output: Any, began: float = 0.0) -> None:
        """Look at the outputs; None after an exception."""
        try:
            if not self._running:
                if not (self._can_wait and args):
                    return
                if type(output) is Tensor:
                    self._after_waiting(args[0], output)
                    return
                self._running.append(self._begun_late(args[0]))
            with torch._C.DisableTorchFunctionSubclass():
                self._after(self._running.pop(), output)
        except Exception as error:
            self._eye.failed(error)

    def _begun_late(self, given: Any) -> _Running:
        """A call of which nothing has been seen before it ended, or raised."""
        running = _Running(self._next_moment(), None)
        self.unseen = False
        if self._sees_gradients and isinstance(given, Tensor) and wants_gradient(given):
            running.used_once.append((given, "[0]"))
        return running

    def _after_waiting(self, given: Any, output: Tensor) -> None:
        """The same and all that follows, for a tensor made of a tensor: what most calls are."""
        moment = self._next_moment()
        self.unseen = False
        if self._sees_outputs:
            self._observe(self._sites.act, output, moment)
        is_differentiated = self._sees_gradients and output.grad_fn is not None and isinstance(given, Tensor)
        if is_differentiated and given.requires_grad and wants_gradient(given):
            site = self._sites.igrad
            if not self._gradients.at_use(given, output, site, moment, None):
                self._gradients.at_tensor(given, site, moment)
        if self._follow:
            self._eye.followed_at(self.path, self._follow)

    def _after(self, running: _Running, output: Any) -> None:
        moment, call = running.moment, running.call
        trace = self._trace
        try:
            outputs: list[tuple[str, Tensor]] = []
            if self._sees_outputs:
                outputs = tensors_of(output, cut=self._cut)
                first = output[0] if isinstance(output, (tuple, list)) and output else output
                for path, tensor in outputs:
                    self.unseen = False
                    index = self._observe(self._sites.of("fwd", "act", path, is_flow=tensor is first), tensor, moment)
                    if call is not None and trace is not None:
                        trace.mark(index, Mark(call, computed=self._says_how(index, tensor)))
                        if wants_gradient(tensor):
                            trace.produced(call, tensor)
                        if call.parent is None:
                            trace.given_out(tensor)
            if running.used_once or running.shared:
                self._tell_apart(running, outputs or tensors_of(output))
            if call is not None and trace is not None and self._has_buffers:
                self._look_at_buffers(moment, call, trace)
            if self._follow:
                self._eye.followed_at(self.path, self._follow)
        finally:
            if call is not None and trace is not None:
                trace.leave(call)

    def _tell_apart(self, running: _Running, outputs: list[tuple[str, Tensor]]) -> None:
        """Look at this call's part of the gradients of its inputs, where that can be told from the graph."""
        trace, call = self._trace, running.call
        computed = [tensor for _, tensor in outputs if tensor.grad_fn is not None]
        if not computed:
            return  # no gradient comes back, or an exception has ended the call, as checkpointing does
        for tensor, path in running.used_once if self._sees_gradients or call is not None else ():
            self._await_use(tensor, path, computed[0], running.moment, call)
        if call is not None and trace is not None:
            for tensor in running.shared:
                trace.tell_apart(call, tensor, computed)

    def _await_use(self, tensor: Tensor, path: str, output: Tensor, moment: Moment, call: Call | None) -> None:
        """Look at the gradient of an input that the call used once, where that use hands it on."""
        trace = self._trace
        site = self._sites.of("bwd", "igrad", path, is_flow=True)
        token = trace.apart(call) if call is not None and trace is not None else None
        if self._gradients.at_use(tensor, output, site, moment, token):
            return
        if self._sees_gradients:
            self._gradients.at_tensor(tensor, site, moment)
        if call is not None and trace is not None:
            trace.consumed_apart(call, tensor)

    def current_step(self) -> int:
        return self._moments.step

    def release(self) -> None:
        """Take the hooks off inputs that live on."""
        self._gradients.release()

    def _says_how(self, index: int | None, tensor: Tensor) -> bool | None:
        """Of a tensor with -Inf, whether they were computed; None if that is not asked, or not known."""
        if index is None or not self._eye.reader.may_be_masked(index):
            return None
        return computed_infinity(tensor)

    def _next_moment(self) -> Moment:
        step = self._moments.step
        invocations = self._invocations
        if step != self._step:
            self._step = step
            invocations[:] = (0, 0)
            self._running.clear()  # what an exception that is no Exception left behind
        recompute = in_backward()
        invocations[recompute] += 1
        if not recompute and invocations[0] == 1:
            return self._moments.first
        return self._moments.of(invocations[recompute], recompute)

    def _cut(self, most: int) -> None:
        """A value has more tensors than are looked at."""
        self._eye.reader.pass_over(self.path, f"beyond the first {most} of one value")

    def _look_at_buffers(self, moment: Moment, call: Call, trace: CallTrace) -> None:
        module = self.module()
        for name, buffer in module.named_buffers(recurse=False) if module is not None else ():
            if not is_lazy(buffer) and buffer.is_floating_point() and buffer.numel() <= _BUFFER_NUMEL:
                index = self._observe(self._sites.of("fwd", "buffer", name), buffer, moment)
                trace.mark(index, Mark(call))
