"""How much a step works on: samples and tokens, as the inputs of its model tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.jagged import is_awaitable, is_jagged

_DEPTH = 4
_MOST_PARTS = 200  # looked at; a list of a thousand features is one batch all the same
_INTEGERS = (torch.int64, torch.int32, torch.int16)


class Batch(NamedTuple):
    """What a step works on; None is what its inputs do not tell.

    Attributes:
        samples: Size of the first dimension of the first tensor, or the stride of torchrec's KeyedJaggedTensor.
        tokens: Elements of the first whole-numbered tensor of two dimensions.
    """

    samples: int | None = None
    tokens: int | None = None


def batch_of(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Batch:
    """The batch that a model is called with, without reading a value of it."""
    samples: int | None = None
    for part in _parts((*args, *(kwargs or {}).values())):
        if isinstance(part, Tensor):
            shape = part.shape
            if samples is None and shape:
                samples = int(shape[0])
            if len(shape) == 2 and part.dtype in _INTEGERS:
                return Batch(samples, part.numel())
        elif samples is None:
            samples = _stride_of(part)
    return Batch(samples)


def _parts(values: Any) -> Iterator[Any]:
    """Tensors and jagged tensors, in the order of the inputs: of dense ones and what holds them in turn."""
    pending = [(value, _DEPTH) for value in reversed(values)]
    for _ in range(_MOST_PARTS):
        if not pending:
            return
        value, depth = pending.pop()
        if isinstance(value, Tensor) or is_jagged(value):
            yield value
        elif depth and not is_awaitable(value):
            pending += [(part, depth - 1) for part in reversed(_inside(value))]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return list(value[:_MOST_PARTS])
    if isinstance(value, Mapping):
        return list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return []


def _stride_of(jagged: Any) -> int | None:
    """Samples of a KeyedJaggedTensor; those of a JaggedTensor are its bags."""
    stride = getattr(jagged, "stride", None)
    if callable(stride):
        return int(stride())
    lengths = jagged.lengths_or_none()
    return None if lengths is None else int(lengths.numel())
