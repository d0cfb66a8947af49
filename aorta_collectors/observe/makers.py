"""How the -Inf in a tensor got there: written, as masks are, or computed, as by log(0).

Told from the operations that autograd remembers, the nearest first. Names of autograd nodes are not a public interface
of torch; one that is not known here decides nothing.
"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

_MOST_NODES = 24
_NAME = re.compile(r"(\w+?)Backward\d*$")
# Operations that put given values into a tensor.
_WRITES = frozenset(
    {
        "MaskedFill",
        "MaskedScatter",
        "Where",
        "IndexFill",
        "IndexPut",
        "IndexPutImpl",
        "IndexCopy",
        "Fill",
        "Scatter",
        "ScatterReduce",
        "SliceScatter",
        "SelectScatter",
        "ConstantPadNd",
        "Copy",
        "Maximum",
        "Minimum",
        "Triu",
        "Tril",
        "ScaledDotProductEfficientAttention",
    }
)
# These as well, where one of their operands is not differentiated: an additive mask, unless what it is added to was
# computed by an operation that can give -Inf itself.
_WRITES_CONSTANT = frozenset({"Add", "Sub", "Cat", "Stack", "Baddbmm"})
# Operations that give -Inf for clean values without saying that it is meant.
_COMPUTES = frozenset({"Log", "Log2", "Log10", "Log1P", "Logit", "Reciprocal", "Digamma", "Lgamma", "Atanh", "Erfinv"})
# Operations that may overflow; what lies behind them is another value.
_MAY_OVERFLOW = frozenset({"Exp", "Neg", "Pow", "Square", "Cumsum", "Sum", "Prod", "Expm1", "Sinh"})
_ENDS = frozenset({"Mm", "Addmm", "Bmm", "Linear", "Convolution", "Embedding", "NativeLayerNorm"})


def computed_infinity(tensor: Tensor) -> bool | None:
    """Whether arithmetic made the -Inf in `tensor`; False if they were written, None if that cannot be told."""
    pending: list[Any] = [tensor.grad_fn]
    known: set[Any] = set()
    answer: bool | None = None  # False once a constant was added: a mask, if nothing behind speaks against it
    for _ in range(_MOST_NODES):
        if not pending:
            return answer
        node = pending.pop(0)
        if node is None or node in known:
            continue
        known.add(node)
        name = _operation(node)
        if name in _COMPUTES:
            return True
        if name in _WRITES:
            return False
        if name in _MAY_OVERFLOW:
            return None
        following = [parent for parent, _ in node.next_functions]
        if name in _WRITES_CONSTANT and None in following and len(following) > 1:
            answer = False
        if name not in _ENDS:
            pending += following
    return answer


def _operation(node: Any) -> str:
    """The operation of an autograd node: "Log1P" of Log1PBackward0; of an in-place edit of a view, "Copy"."""
    name = node.name()
    if name.endswith("CopySlices"):
        return "Copy"
    found = _NAME.match(name)
    return found.group(1) if found else name
