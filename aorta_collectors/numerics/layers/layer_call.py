"""A call of a layer that is going on, and what it has at hand that explains -Inf in its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.observe.makers import computed_infinity
from aorta_collectors.observe.tensor_stats import TensorStats
from aorta_collectors.observe.tensors import tensors_of_call

# Of the dtype's largest number: what is finite grew along with what overflowed.
_NEAR = 16


class LayerCall(NamedTuple):
    """What a layer was called with. torch itself holds on to these until the call has ended."""

    brick: Brick
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] | None

    def inputs(self) -> list[tuple[str, Tensor]]:
        """(path, tensor) of each."""
        return tensors_of_call(self.args, self.kwargs)


def is_mask(tensor: Tensor, stats: TensorStats, call: LayerCall | None, read: Callable[[Tensor], Any]) -> bool:
    """Whether -Inf in an output, which holds nothing worse, are those of an additive mask.

    They are where an operation wrote them, and are not where arithmetic made them, as log(0) does. Where autograd does
    not tell: where nothing but 0 stands beside them, or the call had a mask at hand.

    Args:
        stats: Of `tensor`: `only_negative_infinite`.
        read: Gives the statistics of an input, None where there are none.
    """
    computed = computed_infinity(tensor)
    if computed is not None:
        return not computed
    if stats.finite_min == 0.0 and stats.finite_max == 0.0:
        return True
    high = stats.finite_max
    if high is not None and tensor.dtype.is_floating_point and high >= torch.finfo(tensor.dtype).max / _NEAR:
        return False
    return call is not None and _has_mask(call, read)


def _has_mask(call: LayerCall, read: Callable[[Tensor], Any]) -> bool:
    if any("mask" in name and value is not None for name, value in (call.kwargs or {}).items()):
        return True
    module = call.brick.module()
    buffers = [] if module is None else [buffer for buffer in module.buffers(recurse=False) if not is_lazy(buffer)]
    inputs = [tensor for _, tensor in call.inputs()]
    if any(tensor.dtype is torch.bool for tensor in (*inputs, *buffers)):
        return True
    found = [read(tensor) for tensor in inputs if tensor.is_floating_point()]
    return any(stats is not None and stats.only_negative_infinite for stats in found)
