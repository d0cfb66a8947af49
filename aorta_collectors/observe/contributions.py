"""The part of a tensor's gradient that one of its uses contributes, read from the autograd graph as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

_MOST_NODES = 5000


class SingleUse:
    """Where in the graph a module that uses its input once hands the gradient on.

    The way there from the module's output is the same in each call. It is looked for once, and then only checked.
    """

    __slots__ = ("_way",)

    def __init__(self) -> None:
        self._way: list[int] | None = None

    def find(self, tensor: Tensor, output: Tensor) -> tuple[Any, int] | None:
        """(node, position of the gradient of `tensor` among its inputs' gradients), or None if it is not reached.

        Args:
            tensor: Requires grad, and is as it was when `output` was computed from it.
            output: Requires grad.
        """
        source, number = _source(tensor)
        way = self._way
        if way is not None:
            node = _along(output.grad_fn, way)
            following = node.next_functions if node is not None else ()
            position = way[-1]
            if position < len(following):
                found, input_number = following[position]
                if found is source and input_number == number:
                    return node, position
        self._way = way = _way(output.grad_fn, source, number)
        return None if way is None else (_along(output.grad_fn, way), way[-1])


def _source(tensor: Tensor) -> tuple[Any, int]:
    """The node that takes in the gradient of `tensor`, and as which of its outputs' it does."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    node, number, *_ = get_gradient_edge(tensor)
    return node, number


def _along(node: Any, way: list[int]) -> Any:
    """The last node of a way that begins at `node`; None where it leads nowhere."""
    for position in way[:-1]:
        following = node.next_functions
        node = following[position][0] if position < len(following) else None
        if node is None:
            return None
    return node


def _way(start: Any, source: Any, number: int) -> list[int] | None:
    """Positions among the next functions, from `start` to a use of `source`; None where there is none, or it is far."""
    pending: list[tuple[Any, list[int]]] = [(start, [])]
    known = {start}
    while pending and len(known) <= _MOST_NODES:
        node, way = pending.pop()
        for position, (following, input_number) in enumerate(node.next_functions):
            if following is source:
                if input_number == number:
                    return [*way, position]
            elif following is not None and following not in known:
                known.add(following)
                pending.append((following, [*way, position]))
    return None


def hook_contribution(tensor: Tensor, outputs: Iterable[Tensor], observe: Callable[[Tensor], None]) -> bool:
    """Have `observe` called with the gradients that flow to `tensor` from what computed `outputs`.

    The nodes between the two are walked once. Their hooks refer to no node, so that the graph is freed as ever.

    Args:
        tensor: Requires grad, and is as it was when the outputs were computed from it.
        observe: May be called several times in a backward pass, once for each use. Must not raise.

    Returns:
        False, with nothing hooked, if `tensor` is not reached, or the graph between is too large.
    """
    source, number = _source(tensor)
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
