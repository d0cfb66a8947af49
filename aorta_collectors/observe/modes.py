"""Stepping out of the program's modes and transforms, which take part in all that torch does: not in what we do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

T = TypeVar("T")


def in_any_mode() -> bool:
    """Whether a TorchFunctionMode (torch.set_default_device is one as well) or a TorchDispatchMode is on."""
    return bool(torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack())


def out_of_modes(function: Callable[..., T], *args: object) -> T:
    """What `function` returns when it is called where no mode is on, and no __torch_function__ of a subclass is asked.

    Afterwards the modes are on as before, also if it raises.
    """
    if torch._C._len_torch_dispatch_stack():
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return function(*args)
    if torch._C._len_torch_function_stack():
        with torch._C.DisableTorchFunction():
            return function(*args)
    return function(*args)


def out_of_transforms(function: Callable[..., T], *args: object) -> T:
    """What `function` returns when it is called where no vmap, grad or jvp of torch.func is going on.

    Within them, what is made of a tensor that they do not even know is wrapped by them, and has no memory of its own.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        return function(*args)
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        return function(*args)
