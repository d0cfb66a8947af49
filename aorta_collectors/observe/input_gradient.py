"""The gradient with respect to a module's input, without changing what the program computes.

torch's own full backward hook wraps the module's inputs *and outputs* in a custom autograd function. That makes an
in-place operation on the output (a following ReLU(inplace=True)) an error, and breaks `query is key` tests, which
select another kernel. An alias of the input would change the order in which autograd adds up contributions, and with it
the last bits of a second derivative. So the graph stays as it is, and the gradient is read at one of two places:

* For a module whose forward uses its input exactly once, where that use hands it on (`contributions`): this module's
  contribution alone, as the stock logger has it.
* For any other module, at the input itself: the gradient of that tensor from all its uses, which is the module's own
  wherever nothing else consumes the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

# Modules whose forward reads its first argument once and never returns it (Identity, a Dropout in evaluation, anything
# in place). Compared by the forward function, so that a subclass which overrides forward falls back to the tensor's own
# hook.
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


class _OutsideOfCompilers:
    """A gradient hook, as one small object: there is one for each tensor of a step that is followed."""

    __slots__ = ("_hook",)

    # A leaf keeps its hooks, and torch warns of them when it is saved, unless they say that they need not be.
    __torch_unserializable__ = True

    def __init__(self, hook: Callable[[Tensor], None]) -> None:
        self._hook = hook

    def __call__(self, grad: Tensor | None) -> None:
        # What compiled code returns and nothing outside of it uses has no gradient; torch tells of that as well.
        if grad is not None and not torch.compiler.is_compiling():  # as compiled autograd does
            self._hook(grad)


def hook_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> Any:
    """Have `hook` called with the gradient of `tensor`, which requires grad; returns the handle of the hook."""
    register: Any = tensor.register_hook
    return register(_OutsideOfCompilers(hook))


class KeptHooks:
    """One gradient hook a tensor, on tensors that may come again: each would collect one at every step."""

    def __init__(self) -> None:
        self._handles: Any = WeakTensorKeyDictionary()

    def put(self, tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
        """Have `hook` called with the gradient of `tensor`, instead of what was put there before."""
        earlier = self._handles.pop(tensor, None)
        if earlier is not None:
            earlier.remove()
        self._handles[tensor] = hook_gradient(tensor, hook)

    def clear(self) -> None:
        """Take the hooks off tensors that live on."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()


def wants_gradient(tensor: Tensor) -> bool:
    # Inside vmap and the like a tensor takes no hooks.
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
