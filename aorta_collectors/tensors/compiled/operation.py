"""The operation that hands a tensor out of compiled code: `aorta_collectors::tensor`.

It computes nothing, and has an effect: compilers keep it, each once, in its place. Where autograd is traced, or runs,
it hangs a hook on the tensor, so that the gradient is handed out by the same operation in the backward graph. No value
passes through it, so that results depend on it only as far as a compiler must now keep in memory, and not fuse, what
is handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.node import has_side_effect

NAMESPACE = "aorta_collectors"
_SCHEMA = "tensor(Tensor value, int region, int site, str kind, str path, str name, bool follow) -> ()"
# Among the operations of the namespace, which is one object a process: what they are defined by must live as long.
_LIBRARY = "library"

#: Arguments of the operation behind the tensor; -1 for a region and a site that are not known yet.
Arguments = tuple[int, int, str, str, str, bool]
INPUT, KEYWORD, OUTPUT, USER, USER_GRADIENT = "input", "keyword", "output", "user", "user_gradient"
#: What the hook on a tensor hands out.
GRADIENT = "gradient"


def define(handed_out: Callable[..., None], followed: Callable[..., bool]) -> bool:
    """Define the operation, once in a process; returns whether compilers of this torch are sure to keep it.

    Args:
        handed_out: Called with a tensor and the arguments where the operation runs.
        followed: Called where a tensor's gradient is to be handed out and it is the program's own, not that of a
            compiler that traces it; whether that has been seen to.
    """
    namespace: Any = getattr(torch.ops, NAMESPACE)
    if not hasattr(namespace, _LIBRARY):
        made: Any = torch.library.Library
        library = made(NAMESPACE, "DEF")
        flexible = getattr(torch.Tag, "flexible_layout", None)  # no compiler is to lay out the tensor anew for it
        library.define(_SCHEMA, tags=(flexible,) if flexible is not None else ())
        library.impl("tensor", handed_out, "CompositeExplicitAutograd")
        library.impl("tensor", _with_gradient(followed), "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::tensor", _nothing, lib=library)
        if hasattr(torch.library, "register_vmap"):
            torch.library.register_vmap(f"{NAMESPACE}::tensor", _whole_batch, lib=library)
        setattr(namespace, _LIBRARY, library)
        has_side_effect(operation())
        namespace.is_kept = _registered_as_effect()
    return bool(namespace.is_kept)


def operation() -> Any:
    """The operation, as nodes of a graph name it."""
    return getattr(torch.ops, NAMESPACE).tensor.default


def is_operation(target: Any) -> bool:
    """Whether a node's target is it."""
    namespace: Any = getattr(torch.ops, NAMESPACE)
    return target is namespace.tensor or target is namespace.tensor.default


def hands_out_gradients() -> bool:
    """Whether AOTAutograd of this torch takes effects in a backward graph."""
    from dataclasses import fields

    try:
        from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
    except ImportError:
        return False
    return any(field.name == "num_backward_tokens" for field in fields(ViewAndMutationMeta))


def _registered_as_effect() -> bool:
    try:
        from torch._higher_order_ops import effects

        kind: Any = effects._EffectType.ORDERED
        register: Any = getattr(effects, "_register_effectful_op", None)
        if register is not None:
            register(operation(), kind)
        else:
            effects.SIDE_EFFECTS[operation()] = kind  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        return False
    return True


def _with_gradient(followed: Callable[..., bool]) -> Callable[..., None]:
    def autograd(value: Tensor, *arguments: Any) -> None:
        region, site, _kind, path, name, follow = arguments
        # What autograd did not compute here is an input of the graph: its gradient has other parts elsewhere.
        if follow and value.grad_fn is not None and torch.is_grad_enabled():
            is_traced = type(value) is not Tensor
            if is_traced or not followed(value, *arguments):

                def hand_out(grad: Tensor) -> None:
                    operation()(grad, region, site, GRADIENT, path, name, False)

                register: Any = value.register_hook
                register(hand_out)
        with torch._C._AutoDispatchBelowAutograd():
            operation()(value, *arguments)

    return autograd


def _nothing(_value: Tensor, *_arguments: Any) -> None:
    """What it computes."""


def _whole_batch(_info: Any, _in_dims: Any, value: Tensor, *arguments: Any) -> tuple[None, None]:
    operation()(value, *arguments[:-1], False)  # inside vmap, eager tensors take no hooks either
    return None, None
