"""The calls of one layer, told to the listener. Nothing of it is attached to the module."""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.observe.called import Deferring, Kwargs
from aorta_collectors.observe.input_gradient import KeptHooks, hook_gradient, wants_gradient
from aorta_collectors.observe.lifecycle.telling import Telling
from aorta_collectors.observe.tensors import tensors_of
from aorta_collectors.observe.trace import in_backward


class LayerCalls(Deferring):
    """
    Args:
        module: Whose calls are seen.
        wrapped: What it wraps, which is told of as the layer; itself where it is no wrapper.
        is_told: Whether the listener is told of calls.

    Attributes:
        See `observe.called.Called`.
    """

    is_plain_part = False  # the listener is told of what goes in

    def __init__(
        self,
        telling: Telling,
        module: nn.Module,
        wrapped: nn.Module,
        layer: str,
        *,
        is_part: bool,
        is_model: bool,
        is_told: bool,
    ) -> None:
        super().__init__(telling.cost)
        self.module = weakref.ref(module)
        self.path = self.module_path = layer
        self.is_part = is_part
        self.asked = is_model
        self.unseen = is_model and is_told
        self._telling = telling
        self._wrapped = weakref.ref(wrapped)
        self._is_told = is_told
        self._on_leaves = KeptHooks()

    @property
    def own_layer(self) -> str | None:
        """The layer, where the listener is told of calls and the module wraps no other."""
        return self.path if self._is_told and self._wrapped() is self.module() else None

    def current_step(self) -> int:
        return self._telling.step

    def before(self, args: tuple[Any, ...], kwargs: Kwargs, began: float) -> None:
        telling = self._telling
        if telling.is_silent or in_backward():  # where checkpointing runs it again
            return
        layers = telling.running.layers
        # A wrapper and what it wraps are one layer.
        is_inner = any(outer.path == self.path and outer is not self for outer in layers)
        layers.append(self)
        self._seen()
        if self._is_told and not is_inner:
            telling.tell(self._entered, args, kwargs)

    def _entered(self, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        module = self._wrapped()
        if module is not None:
            self._telling.listener.entered(self.path, module, args, kwargs() or {})

    def _seen(self) -> None:
        if self.unseen:
            self.unseen = False
            self._telling.called_count += 1

    def after(self, args: tuple[Any, ...], output: Any, began: float) -> None:
        telling = self._telling
        layers = telling.running.layers
        if not layers or telling.is_closed or in_backward():
            return
        # An exception may have passed by the end of others inside it.
        place = next((at for at in reversed(range(len(layers))) if layers[at] is self), None)
        if place is None:
            return
        del layers[place:]
        is_inner = any(outer.path == self.path and outer is not self for outer in layers)
        if output is not None and self._is_told and not is_inner:  # None is how torch tells of an exception
            telling.tell(self._left, output)
        if not layers and telling.running.has_left:
            telling.after_forward()

    def _left(self, output: Any) -> None:
        telling, module = self._telling, self._wrapped()
        if module is None:
            return
        if telling.gradients and torch.is_grad_enabled():
            with torch._C.DisableTorchFunctionSubclass():  # a subclass is not to see what is asked of its tensor
                self._await_gradients(output)
        telling.listener.left(self.path, module, output)

    def _await_gradients(self, output: Any) -> None:
        for path, tensor in tensors_of(output):
            if wants_gradient(tensor):
                hook = _AtOutput(self, path)
                if tensor.grad_fn is None:
                    self._on_leaves.put(tensor, hook)  # it may come again: each call would leave one there
                else:
                    hook_gradient(tensor, hook)

    def gradient(self, path: str, grad: Tensor) -> None:
        telling, began = self._telling, perf_counter()
        if not telling.is_silent:
            telling.tell(self._gradient, path, grad)
            telling.cost.hook_s += perf_counter() - began

    def _gradient(self, path: str, grad: Tensor) -> None:
        module = self._wrapped()
        if module is not None:
            self._telling.listener.output_gradient(self.path, module, path, grad)

    def release(self) -> None:
        self._on_leaves.clear()


class _AtOutput:
    """A hook on a tensor that a call returned. It refers to no tensor."""

    __slots__ = ("_calls", "_path")

    def __init__(self, calls: LayerCalls, path: str) -> None:
        self._calls = calls
        self._path = path

    def __call__(self, grad: Tensor) -> None:
        self._calls.gradient(self._path, grad)
