"""Finding the tensors in what a module is called with and what it returns, each under a path that stays the same.

A path reads like the expression that gets at the tensor: `[0]`, `[1].mask`, `['key'][2]`, `values()`. It is empty
where the value itself is the tensor.
"""

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.observe.attributes import in_dict, in_slots
from aorta_collectors.observe.jagged import is_awaitable, values_of

_DEPTH = 6
# Of one value: a key-value cache or a list of features can hold thousands.
_MOST = 1000
# Parts looked at, tensors or not: a list of a million numbers, or objects that refer to one another, cost no time.
_MOST_PARTS = 5000
# Objects that hold no tensors of the program's, or none that may be touched.
_CLOSED = (nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes, int, float, complex)


def tensors_of(value: Any, path: str = "", cut: Callable[[int], None] = lambda most: None) -> list[tuple[str, Tensor]]:
    """(path, tensor) of each tensor in `value`, in order, at most 1000. Paths begin with `path`.

    `cut` is called with that number if there are more.

    Looks into tuples, lists, mappings, dataclasses, torchrec's jagged and keyed tensors, and the public attributes of
    other objects. A torchrec awaitable is passed over: looking at it would wait for it.
    """
    if isinstance(value, Tensor):
        return [(path, value)]
    walk = _Walk()
    walk.collect(value, path, _DEPTH)
    if walk.is_cut:
        cut(len(walk.found))
    return walk.found


def tensors_of_call(
    args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, cut: Callable[[int], None] = lambda most: None
) -> list[tuple[str, Tensor]]:
    """(path, tensor) of each tensor a module is called with: `[0]` for a positional argument, `name` for a keyword."""
    if not kwargs and len(args) == 1 and isinstance(args[0], Tensor):
        return [("[0]", args[0])]
    found = tensors_of(args, cut=cut)
    for name, value in (kwargs or {}).items():
        found += tensors_of(value, name, cut)
    return found


class _Walk:
    """One look through a value."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Tensor]] = []
        self._inside: set[int] = set()
        self._num_parts = 0
        self.is_cut = False

    def collect(self, value: Any, path: str, depth: int) -> None:
        self._num_parts += 1
        if value is None:
            return
        if len(self.found) >= _MOST or self._num_parts > _MOST_PARTS:
            self.is_cut = self.is_cut or isinstance(value, Tensor)
        elif isinstance(value, Tensor):
            self.found.append((path, value))
        elif depth > 0 and id(value) not in self._inside:
            self._inside.add(id(value))
            for step, part in _parts(value):
                self.collect(part, (path + step).removeprefix("."), depth - 1)
                if self._num_parts > _MOST_PARTS:
                    break
            self._inside.discard(id(value))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """(path step, part) of a structured value; nothing for any other. Runs none of the value's own code if it can."""
    if isinstance(value, (tuple, list, deque)):
        names = getattr(type(value), "_fields", None)
        if isinstance(value, torch.Size) or (len(value) > _MOST and isinstance(value[0], (int, float, str))):
            return
        if isinstance(names, tuple) and len(names) == len(value):
            yield from ((f".{name}", part) for name, part in zip(names, value, strict=True))
        else:
            yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, Mapping):
        yield from ((f"[{_key(key, index)}]", part) for index, (key, part) in enumerate(value.items()))
    elif isinstance(value, _CLOSED) or is_awaitable(value):
        return
    elif (values := values_of(value)) is not None:
        yield ".values()", values
        weights = getattr(value, "weights_or_none", None)
        if weights is not None:
            yield ".weights()", weights()
    else:
        own = in_dict(value)
        for name, part in {**own, **in_slots(value), **own}.items():
            # What hands out its attributes itself keeps them in private.
            if not name.startswith("_") or hasattr(type(value), "__getattr__"):
                yield f".{name}", part


def _key(key: Any, index: int) -> str:
    """A key as it stands in a path. One whose text may differ from run to run is known by its place."""
    if key is None or isinstance(key, (str, bytes, int, float, enum.Enum)):
        return repr(key)
    if type(key) is tuple and all(part is None or isinstance(part, (str, bytes, int, float)) for part in key):
        return repr(key)
    return f"{type(key).__name__} {index}"
