"""What is looked at when a watched module is called: its input, the gradient of that, and its output."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from aorta_collectors.observe.input_gradient import hook_input, uses_input_once, wants_gradient
from aorta_collectors.observe.observation import Site
from aorta_collectors.observe.tensors import first_tensor


class Eye(Protocol):
    """What watched modules report to (the observer)."""

    def observe(self, site: Site, tensor: Tensor) -> None: ...
    def observe_gradient(self, site: Site, grad: Tensor) -> None: ...
    def failed(self, error: Exception) -> None: ...


class WatchedModule:
    """The sites of one module. Nothing of it is attached to the module, and no method raises.

    Attributes:
        module: A weak reference.
        path: Layer name.
        unseen: Whether its calls are to be looked at, and none has been so far.
    """

    def __init__(self, eye: Eye, module: nn.Module, path: str, channels: frozenset[str]) -> None:
        self.module = weakref.ref(module)
        self.path = path
        self.unseen = not channels.isdisjoint({"input", "act", "igrad"})
        self._eye = eye
        self._input = Site(path, "fwd", "input") if "input" in channels else None
        self._output = Site(path, "fwd", "act") if "act" in channels else None
        self._gradient: Callable[[Tensor], None] | None = None
        if "igrad" in channels:
            self._gradient = functools.partial(eye.observe_gradient, Site(path, "bwd", "igrad"))
        self._alias = uses_input_once(module)
        # Hooks on inputs that may be passed in again (a learned prompt), which would collect one at every step.
        self._on_inputs: Any = WeakTensorKeyDictionary()

    def before(self, args: tuple[Any, ...], kwargs: Callable[[], Mapping[str, Any] | None]) -> tuple[Any, ...] | None:
        """Look at the input; returns positional arguments to use instead, or None."""
        if self._input is None and self._gradient is None:
            return None
        try:
            tensor = first_tensor(args)
            if tensor is None:
                tensor = first_tensor(kwargs())
            if tensor is None:
                return None
            self.unseen = False
            if self._input is not None:
                self._eye.observe(self._input, tensor)
            if self._gradient is not None and wants_gradient(tensor):
                new_args, handle = hook_input(tensor, args, self._alias, self._gradient)
                if new_args is not None:
                    return new_args
                earlier = self._on_inputs.pop(tensor, None)
                if earlier is not None:
                    earlier.remove()
                self._on_inputs[tensor] = handle
        except Exception as error:
            self._eye.failed(error)
        return None

    def after(self, output: Any) -> None:
        """Look at the output."""
        if self._output is None:
            return
        try:
            tensor = first_tensor(output)
            if tensor is not None:
                self.unseen = False
                self._eye.observe(self._output, tensor)
        except Exception as error:
            self._eye.failed(error)

    def release(self) -> None:
        """Take the hooks off inputs that live on."""
        for handle in self._on_inputs.values():
            handle.remove()
        self._on_inputs.clear()
