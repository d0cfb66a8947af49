"""Finding tensors in what a module is called with and what it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

_DEPTH = 4


def first_tensor(value: Any, depth: int = _DEPTH) -> Tensor | None:
    """The first tensor in `value`: itself, or the first found in a tuple, list, mapping or dataclass, in order.

    Bounded in depth, so that a self-referential structure ends the search instead of the program.
    """
    if isinstance(value, Tensor):
        return value
    if depth == 0 or value is None:
        return None
    parts: Any
    if isinstance(value, (tuple, list)):
        parts = value
    elif isinstance(value, Mapping):
        parts = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name, None) for field in dataclasses.fields(value))
    else:
        return None
    for part in parts:
        found = first_tensor(part, depth - 1)
        if found is not None:
            return found
    return None
