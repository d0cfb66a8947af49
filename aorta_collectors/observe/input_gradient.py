"""The gradient with respect to a module's input, without changing what the program computes.

torch's own full backward hook wraps the module's inputs *and outputs* in a custom autograd function. That makes an
in-place operation on the output (a following ReLU(inplace=True)) an error, and breaks `query is key` tests, which
select another kernel. So the gradient is read from a tensor hook instead, on one of two tensors:

* For a module whose forward uses its input exactly once, the input is passed on as `x.view_as(x)`. A view is an
  ordinary differentiable alias, and its gradient is this module's contribution alone, as the stock logger has it.
* For any other module, an alias would change the order in which autograd adds up contributions, and with it the last
  bits of the loss. There the hook sits on the input itself and sees the gradient of that tensor from all its uses,
  which is the module's own wherever nothing else consumes the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# Modules whose forward reads its first argument once and never returns it, since what comes out would be a view then
# (Identity, a Dropout in evaluation, anything in place). Compared by the forward function, so that a subclass which
# overrides forward falls back to the tensor's own hook.
_SINGLE_USE: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softmax,
)
_SINGLE_USE_FORWARDS = frozenset(kind.forward for kind in _SINGLE_USE)


def uses_input_once(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule) or getattr(module, "inplace", False) or "forward" in vars(module):
        return False
    return type(module).forward in _SINGLE_USE_FORWARDS


def hook_input(
    tensor: Tensor, args: tuple[Any, ...], alias: bool, hook: Callable[[Tensor], None]
) -> tuple[tuple[Any, ...] | None, Any]:
    """Have `hook` called with the gradient of `tensor`, an input that requires grad.

    Returns:
        (new args, None) where the input is passed on as a view, else (None, the handle of the hook on the input).
    """
    if alias and args and args[0] is tensor and type(tensor) is Tensor:
        view = tensor.view_as(tensor)
        _register(view, hook)
        return (view, *args[1:]), None
    return None, _register(tensor, hook)


def _register(tensor: Tensor, hook: Callable[[Tensor], None]) -> Any:
    register: Any = tensor.register_hook
    return register(hook)


def wants_gradient(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()
