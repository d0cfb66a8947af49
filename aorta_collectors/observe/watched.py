"""What is looked at when a module is called: its inputs, the gradients of those, and its outputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.contributions import hook_contribution
from aorta_collectors.observe.input_gradient import KeptHooks, uses_input_once, wants_gradient
from aorta_collectors.observe.makers import computed_infinity
from aorta_collectors.observe.observation import Moment, Site
from aorta_collectors.observe.tensors import tensors_of, tensors_of_call
from aorta_collectors.observe.trace import Call, CallTrace, Mark, in_backward

_BUFFER_NUMEL = 1_000_000


class Eye(Protocol):
    """What watched modules report to (the observer)."""

    @property
    def step(self) -> int: ...
    @property
    def calls_traced(self) -> CallTrace | None: ...
    def observe(self, site: Site, tensor: Tensor, moment: Moment) -> int | None: ...
    def moment(self, invocation: int, recompute: bool) -> Moment: ...
    def bounds_of(self, layer: str) -> tuple[float, float] | None: ...
    def followed_at(self, layer: str, entries: tuple[int, ...]) -> None: ...
    def may_be_masked(self, index: int) -> bool: ...
    def passed_over(self, layer: str, reason: str) -> None: ...
    def failed(self, error: Exception) -> None: ...


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


class WatchedModule:
    """The sites of one module. Nothing of it is attached to the module, and no method raises.

    Attributes:
        module: A weak reference.
        path: Layer name.
        module_path: The same without what wrappers add.
        asked: Whether records of it were asked for; else it is looked at for the origin of a bad value alone.
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
    ) -> None:
        self.module = weakref.ref(module)
        self.path = path
        self.asked = bool(channels or follow)
        self.unseen = not channels.isdisjoint({"input", "act", "igrad"})
        self.module_path = module_path
        self._eye = eye
        self._channels = channels
        self._follow = follow
        self._bounds = eye.bounds_of(path) if channels else None
        self._sites: dict[tuple[str, str], Site] = {}
        self._step = 0
        # Calls within the step, and of those the ones that activation checkpointing made.
        self._invocations = [0, 0]
        self._running: list[_Running] = []
        self._deferred = 0
        buffers = [buffer for buffer in module.buffers(recurse=False) if buffer is not None]
        self._uses_once = uses_input_once(module)
        # Of these, the three that are used on masked scores.
        self._takes_no_mask = self._uses_once and not isinstance(module, (nn.Softmax, nn.Sigmoid, nn.ReLU))
        self._is_whole = not any(True for _ in module.children())
        self._num_values = sum(param is not None for param in module._parameters.values()) + sum(
            not is_lazy(buffer) and buffer.is_floating_point() for buffer in buffers
        )
        self._on_inputs = KeptHooks()  # an input may be a learned prompt, say
        self._masked = any(not is_lazy(buffer) and buffer.dtype is torch.bool for buffer in buffers)
        self._has_buffers = any(is_lazy(buffer) or buffer.is_floating_point() for buffer in buffers)

    def before(self, args: tuple[Any, ...], kwargs: Callable[[], Mapping[str, Any] | None]) -> None:
        """Look at the inputs."""
        try:
            self._before(args, kwargs)
        except Exception as error:
            self._eye.failed(error)

    def _before(self, args: tuple[Any, ...], kwargs: Callable[[], Mapping[str, Any] | None]) -> None:
        moment = self._next_moment()
        trace = self._eye.calls_traced
        call = None
        if trace is not None:
            call = trace.enter(self.path, self.module_path, moment.invocation, moment.recompute)
            call.has_mask = self._masked
            call.takes_no_mask = self._takes_no_mask
        running = _Running(moment, call)
        self._running.append(running)
        looks = call is not None or "input" in self._channels
        if not looks and "igrad" not in self._channels:
            return
        # Such a module takes one tensor and nothing else.
        is_plain = self._uses_once and len(args) == 1 and isinstance(args[0], Tensor)
        for path, tensor in (("[0]", args[0]),) if is_plain else tensors_of_call(args, kwargs(), self._cut):
            self.unseen = False
            if looks:
                index = self._eye.observe(self._site("fwd", "input", path), tensor, moment)
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
        trace, call = self._eye.calls_traced, running.call
        if self._uses_once and is_first:
            running.used_once.append((tensor, path))
            return
        if "igrad" in self._channels:
            site = self._site("bwd", "igrad", path, is_flow=is_first)
            self._on_inputs.put(tensor, self._observer(site, running.moment))
        if call is not None and trace is not None and trace.consumed(call, tensor):
            running.shared.append(tensor)

    def after(self, output: Any) -> None:
        """Look at the outputs; None after an exception."""
        if not self._running:
            return
        running = self._running.pop()
        moment, call = running.moment, running.call
        trace = self._eye.calls_traced
        try:
            outputs: list[tuple[str, Tensor]] = []
            if call is not None or "act" in self._channels:
                outputs = tensors_of(output, cut=self._cut)
                first = output[0] if isinstance(output, (tuple, list)) and output else output
                for path, tensor in outputs:
                    self.unseen = False
                    index = self._eye.observe(self._site("fwd", "act", path, is_flow=tensor is first), tensor, moment)
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
        except Exception as error:
            self._eye.failed(error)
        finally:
            if call is not None and trace is not None:
                trace.leave(call)

    def _tell_apart(self, running: _Running, outputs: list[tuple[str, Tensor]]) -> None:
        """Look at this call's part of the gradients of its inputs, where that can be told from the graph."""
        trace, call, moment = self._eye.calls_traced, running.call, running.moment
        computed = [tensor for _, tensor in outputs if tensor.grad_fn is not None]
        if not computed:
            return  # no gradient comes back, or an exception has ended the call, as checkpointing does
        for tensor, path in running.used_once:
            if "igrad" in self._channels:
                site = self._site("bwd", "igrad", path, is_flow=True)
                observe = self._observer(site, moment)
                if not hook_contribution(tensor, computed, observe, is_used_once=True):
                    self._on_inputs.put(tensor, observe)
            if call is not None and trace is not None:
                trace.tell_apart(call, tensor, computed, is_used_once=True)
        if call is not None and trace is not None:
            for tensor in running.shared:
                trace.tell_apart(call, tensor, computed)

    def defer(self, module: nn.Module) -> None:
        """Look at the outputs of the call that begins after the module's own hooks, which may replace them.

        torch runs those after its global ones. The hook for it is gone before the call has ended.
        """

        def late(_module: nn.Module, _args: Any, output: Any) -> None:
            handle.remove()
            self._deferred -= 1
            self.after(output)

        handle = module.register_forward_hook(late, always_call=True)
        self._deferred += 1

    @property
    def is_deferred(self) -> bool:
        return self._deferred > 0

    def release(self) -> None:
        """Take the hooks off inputs that live on."""
        self._on_inputs.clear()

    def _says_how(self, index: int | None, tensor: Tensor) -> bool | None:
        """Of a tensor with -Inf, whether they were computed; None if that is not asked, or not known."""
        return computed_infinity(tensor) if index is not None and self._eye.may_be_masked(index) else None

    def _next_moment(self) -> Moment:
        step = self._eye.step
        if step != self._step:
            self._step = step
            self._invocations = [0, 0]
            self._running.clear()  # what an exception that is no Exception left behind
            self._deferred = 0
        recompute = in_backward()
        self._invocations[recompute] += 1
        return self._eye.moment(self._invocations[recompute], recompute)

    def _observer(self, site: Site, moment: Moment) -> Callable[[Tensor], None]:
        eye = self._eye

        def observe(grad: Tensor) -> None:
            try:
                eye.observe(site, grad, moment)
            except Exception as error:
                eye.failed(error)

        return observe

    def _cut(self, most: int) -> None:
        """A value has more tensors than are looked at."""
        self._eye.passed_over(self.path, f"beyond the first {most} of one value")

    def _look_at_buffers(self, moment: Moment, call: Call, trace: CallTrace) -> None:
        module = self.module()
        for name, buffer in module.named_buffers(recurse=False) if module is not None else ():
            if not is_lazy(buffer) and buffer.is_floating_point() and buffer.numel() <= _BUFFER_NUMEL:
                index = self._eye.observe(self._site("fwd", "buffer", name), buffer, moment)
                trace.mark(index, Mark(call))

    def _site(self, direction: str, role: str, path: str, *, is_flow: bool = False) -> Site:
        key = (role, path)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = Site(
                self.path,
                direction,
                role,
                param=path if role == "buffer" else "",
                module_path=self.module_path,
                tensor_path="" if role == "buffer" else path,
                bounds=self._bounds,
                recorded=role in self._channels,
                # The stock logger's count: of a call, the value itself or the first element of a tuple.
                is_flow=is_flow and role in self._channels,
                num_values=self._num_values if self._is_whole else None,
            )
        return site
