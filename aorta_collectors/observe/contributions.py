"""The part of a tensor's gradient that one of its uses contributes, read from the autograd graph as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

_MOST_NODES = 5000


def hook_contribution(
    tensor: Tensor, outputs: Iterable[Tensor], observe: Callable[[Tensor], None], *, is_used_once: bool = False
) -> bool:
    """Have `observe` called with the gradients that flow to `tensor` from what computed `outputs`.

    The nodes between the two are walked once. Their hooks refer to no node, so that the graph is freed as ever.

    Args:
        tensor: Requires grad, and is as it was when the outputs were computed from it.
        is_used_once: Whether there is one use at most, so that the walk may end there.
        observe: May be called several times in a backward pass, once for each use. Must not raise.

    Returns:
        False, with nothing hooked, if `tensor` is not reached, or the graph between is too large.
    """
    source = tensor.grad_fn
    number = tensor.output_nr
    if source is None:
        source, number, *_ = get_gradient_edge(tensor)
    pending: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    known = set(pending)
    uses: list[tuple[Any, list[int]]] = []
    while pending:
        node = pending.pop()
        positions = []
        for position, (following, input_number) in enumerate(node.next_functions):
            if following is source:
                if input_number == number:
                    positions.append(position)
            elif following is not None and following not in known:
                known.add(following)
                pending.append(following)
        if positions:
            uses.append((node, positions))
            if is_used_once:
                break
        if len(known) > _MOST_NODES:
            return False
    for node, positions in uses:
        node.register_hook(_reporting(positions, observe))
    return bool(uses)


def _reporting(positions: list[int], observe: Callable[[Tensor], None]) -> Callable[[Any, Any], None]:
    def hook(grad_inputs: Any, _grad_outputs: Any) -> None:
        if torch.compiler.is_compiling():  # as compiled autograd does
            return
        for position in positions:
            gradient = grad_inputs[position]
            if isinstance(gradient, Tensor):
                observe(gradient)

    return hook
