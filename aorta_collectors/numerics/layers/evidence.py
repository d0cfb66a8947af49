"""Looking closer at a call that gave out a bad value: once, when the program is about to end, whatever time it takes.

What cannot be looked at is no evidence: each function gives nothing then.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.numerics.layers.layer_call import LayerCall
from aorta_collectors.observe.tensor_stats import values_of

_MOST_OPERATIONS = 8
_MOST_ROWS = 5
_NAME = re.compile(r"(\w+?)Backward\d*$")
#: Of autograd nodes that tell nothing of what was computed.
_SHAPES = frozenset({"View", "UnsafeView", "Transpose", "Permute", "T", "Reshape", "Expand", "Unsqueeze", "Squeeze"})
_ENDS = ("AccumulateGrad", "torch::autograd::AccumulateGrad")


def last_operations(tensor: Tensor) -> tuple[str, ...]:
    """The operations nearest to `tensor` that autograd remembers, the last one first; empty where it does not.

    An autograd.Function of the program's stands as "autograd.Function" and its name.
    """
    pending: list[Any] = [tensor.grad_fn]
    found: list[str] = []
    while pending and len(found) < _MOST_OPERATIONS:
        node = pending.pop(0)
        if node is None or node.name() in _ENDS:
            continue
        name = _NAME.match(node.name())
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found.append(f"autograd.Function {type(node).__name__.removesuffix('Backward')}")
        elif name is not None and name.group(1) not in _SHAPES:
            found.append(name.group(1))
        pending += [parent for parent, _ in node.next_functions]
    return tuple(found)


def masked_rows(module: nn.Module | None, call: LayerCall | None) -> int:
    """Rows that a softmax is given with nothing but -Inf in them."""
    values = _first_input(call)
    if values is None or not isinstance(module, (nn.Softmax, nn.LogSoftmax)) or not values.dim():
        return 0
    dim = module.dim if module.dim is not None else -1
    return int((values == -torch.inf).all(dim).sum().item())


def flat_rows(module: nn.Module | None, call: LayerCall | None) -> int:
    """Rows without variance (of an RMS norm: of zeros) that a norm divides by, where its eps does not help."""
    values = _first_input(call)
    if values is None or "norm" not in type(module).__name__.lower() or not values.dim():
        return 0
    if not loses_eps(module, values.dtype) or not values.is_floating_point():
        return 0
    if "rms" in type(module).__name__.lower():
        return int((values == 0).all(-1).sum().item())
    return int((values.amax(-1) == values.amin(-1)).sum().item())


def loses_eps(module: nn.Module | None, dtype: torch.dtype) -> bool:
    """Whether what a norm adds to a variance, so as not to divide by zero, is 0 in a dtype."""
    eps = getattr(module, "eps", getattr(module, "variance_epsilon", None))
    return isinstance(eps, float) and dtype.is_floating_point and torch.tensor(eps, dtype=dtype).item() == 0.0


def bad_lookups(module: nn.Module | None, call: LayerCall | None) -> tuple[int, ...]:
    """The first rows of an embedding that were looked up and hold NaN or Inf."""
    indices = _first_input(call)
    if indices is None or not isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or indices.is_floating_point():
        return ()
    weight, _ = values_of(module.weight)
    if weight is None:
        return ()
    rows = torch.unique(indices.reshape(-1))
    is_bad = ~torch.isfinite(weight[rows]).all(-1)
    return tuple(rows[is_bad][:_MOST_ROWS].tolist())


def _first_input(call: LayerCall | None) -> Tensor | None:
    tensors = [] if call is None else call.inputs()
    return values_of(tensors[0][1])[0] if tensors else None
