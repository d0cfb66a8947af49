"""Which functions of torch.distributed are collectives, and what each is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Operation(NamedTuple):
    """One collective.

    Attributes:
        name: As it is told.
        tensors: The parameter, and its place, that holds what this rank gives, or gets where only some ranks give;
            None for one without tensors.
        group: Place of the parameter `group`.
    """

    name: str
    tensors: tuple[str, int] | None
    group: int


#: By the function's name. Signatures are the same from torch 2.4 to 2.13.
OPERATIONS: Mapping[str, Operation] = {
    "all_reduce": Operation("all_reduce", ("tensor", 0), 2),
    "all_reduce_coalesced": Operation("all_reduce", ("tensors", 0), 2),
    "all_gather": Operation("all_gather", ("tensor", 1), 2),
    "all_gather_into_tensor": Operation("all_gather", ("input_tensor", 1), 2),
    "all_gather_coalesced": Operation("all_gather", ("input_tensor_list", 1), 2),
    "_all_gather_base": Operation("all_gather", ("input_tensor", 1), 2),
    "reduce_scatter": Operation("reduce_scatter", ("input_list", 1), 3),
    "reduce_scatter_tensor": Operation("reduce_scatter", ("input", 1), 3),
    "_reduce_scatter_base": Operation("reduce_scatter", ("input", 1), 3),
    "all_to_all": Operation("all_to_all", ("input_tensor_list", 1), 2),
    "all_to_all_single": Operation("all_to_all", ("input", 1), 4),
    "broadcast": Operation("broadcast", ("tensor", 0), 2),
    "reduce": Operation("reduce", ("tensor", 0), 3),
    "gather": Operation("gather", ("tensor", 0), 3),
    "scatter": Operation("scatter", ("tensor", 0), 3),
    "barrier": Operation("barrier", None, 0),
    "monitored_barrier": Operation("barrier", None, 0),
}


def group_of(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The process group that a call is for; None for the default one."""
    if "group" in kwargs:
        return kwargs["group"]
    return args[operation.group] if len(args) > operation.group else None


def tensors_of(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    if operation.tensors is None:
        return []
    name, place = operation.tensors
    given = kwargs[name] if name in kwargs else args[place] if len(args) > place else None
    if isinstance(given, Tensor):
        return [given]
    return [tensor for tensor in given if isinstance(tensor, Tensor)] if isinstance(given, (list, tuple)) else []


def bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
