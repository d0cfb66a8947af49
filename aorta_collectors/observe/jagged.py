"""torchrec's jagged tensors: the tensor they stand for, and what can be told of their layout without computing any."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.readable import plain_values

_JAGGED = ("KeyedJaggedTensor", "JaggedTensor")


def is_jagged(value: object) -> bool:
    """Whether `value` is a KeyedJaggedTensor or a JaggedTensor. Never imports torchrec."""
    return _is_a(value, "torchrec.sparse.jagged_tensor", _JAGGED)


def is_awaitable(value: object) -> bool:
    """Whether `value` is one of torchrec's awaitables, which wait for communication at the slightest touch."""
    return _is_a(value, "torchrec.distributed.types", ("Awaitable",))


def values_of(value: Any) -> Tensor | None:
    """The one tensor that holds all elements of a jagged or keyed tensor, or None where `value` is neither."""
    if not _is_a(value, "torchrec.sparse.jagged_tensor", (*_JAGGED, "KeyedTensor")):
        return None
    try:
        values = value.values()
    except Exception:  # a subclass that has none yet
        return None
    return values if isinstance(values, Tensor) else None


def metadata(jagged: Any, heavy: bool = False) -> dict[str, Any]:
    """Layout of a jagged tensor as fields of a record.

    Lengths are told only where the program has them already, and offsets by what follows from them: asking for either
    would make torchrec compute and keep it, in the middle of the program.

    Args:
        heavy: Also bag lengths and the range of the indices. Waits for the device; fields of what is empty or absent
            are left out.
    """
    fields: dict[str, Any] = {"sparse": True}
    keys = getattr(jagged, "keys", None)
    if callable(keys):
        fields["sparse_num_keys"] = len(keys())
    lengths = _present(jagged, "lengths_or_none")
    values = values_of(jagged)
    parts = {"lengths": lengths, "offsets": _present(jagged, "offsets_or_none"), "values": values}
    for name, part in parts.items():
        if part is not None:
            fields[f"sparse_{name}_shape"] = list(part.shape)
            fields[f"sparse_{name}_dtype"] = str(part.dtype)
    if lengths is not None and "sparse_offsets_shape" not in fields:
        fields["sparse_offsets_shape"] = [lengths.numel() + 1]  # as they will be once they are computed
        fields["sparse_offsets_dtype"] = str(lengths.dtype)
    if lengths is not None:
        fields["sparse_num_bags"] = lengths.numel()
    if values is not None:
        fields["sparse_values_device"] = str(values.device)
    if heavy:
        fields.update(_contents(lengths, values))
    return fields


def _contents(lengths: Tensor | None, values: Tensor | None) -> dict[str, int]:
    fields = {}
    # A pipeline may have given the memory up already, which torch would not notice.
    lengths = None if lengths is None else plain_values(lengths)[0]
    values = None if values is None else plain_values(values)[0]
    if lengths is not None:
        fields["sparse_empty_bags"] = int((lengths == 0).sum())
        fields["sparse_max_bag_len"] = int(lengths.max())
    # The values of a weighted or computed jagged tensor may be no indices, and have no whole-numbered range.
    if values is not None and not values.is_floating_point():
        low, high = torch.aminmax(values)
        fields["sparse_index_min"], fields["sparse_index_max"] = int(low), int(high)
    return fields


def _present(jagged: Any, method: str) -> Tensor | None:
    part = getattr(jagged, method)()
    return part if isinstance(part, Tensor) else None


def _is_a(value: object, module: str, names: tuple[str, ...]) -> bool:
    # By the type alone: isinstance would also ask the value for its __class__.
    found = sys.modules.get(module)
    kinds = tuple(kind for name in names if isinstance(kind := getattr(found, name, None), type))
    return bool(kinds) and issubclass(type(value), kinds)
