"""The hooks that stand on a watched module: before its forward and after it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from aorta_collectors.observe.calls import is_recording_program
from aorta_collectors.observe.input_gradient import hook_input, uses_input_once, wants_gradient
from aorta_collectors.observe.observation import Site
from aorta_collectors.observe.tensors import first_tensor


class Eye(Protocol):
    """What the hooks report to (the observer)."""

    def observe(self, site: Site, tensor: Tensor) -> None: ...
    def observe_gradient(self, site: Site, grad: Tensor) -> None: ...
    def failed(self, error: Exception) -> None: ...


class _Hook:
    """A hook belongs to the module that it was made for: a copy of it, or one loaded from a file, does nothing.

    It pickles as a method of the standard library that takes anything and returns None, so that a model which is
    saved whole while it is observed can be loaded where this package is not installed.
    """

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


class BeforeForward(_Hook):
    """Reads the input, and has the gradient with respect to it read in the backward pass."""

    def __init__(self, eye: Eye, input_site: Site | None, gradient_site: Site | None, module: nn.Module) -> None:
        self._eye, self._input_site = eye, input_site
        self._alias = uses_input_once(module)
        # Hooks on inputs that may be passed in again (a learned prompt), which would collect one at every step.
        self._on_inputs: Any = WeakTensorKeyDictionary()
        self._gradient = functools.partial(eye.observe_gradient, gradient_site) if gradient_site is not None else None

    def __call__(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_recording_program():
            return None
        eye = self._eye
        try:
            tensor = first_tensor(args)
            if tensor is None and kwargs:
                tensor = first_tensor(kwargs)
            if tensor is None:
                return None
            if self._input_site is not None:
                eye.observe(self._input_site, tensor)
            if self._gradient is not None and wants_gradient(tensor):
                new_args, handle = hook_input(tensor, args, self._alias, self._gradient)
                if new_args is not None:
                    return new_args, kwargs
                earlier = self._on_inputs.pop(tensor, None)
                if earlier is not None:
                    earlier.remove()
                self._on_inputs[tensor] = handle
        except Exception as error:
            eye.failed(error)
        return None

    def release(self) -> None:
        """Take the hooks off inputs that live on."""
        for handle in self._on_inputs.values():
            handle.remove()
        self._on_inputs.clear()


class AfterForward(_Hook):
    """Reads the output."""

    def __init__(self, eye: Eye, site: Site) -> None:
        self._eye, self._site = eye, site

    def __call__(self, _module: nn.Module, _args: Any, output: Any) -> None:
        if is_recording_program():
            return
        try:
            tensor = first_tensor(output)
            if tensor is not None:
                self._eye.observe(self._site, tensor)
        except Exception as error:
            self._eye.failed(error)
