"""A number of the program's on its way to the host: read at once in host memory, from a device without waiting for it.

On a CUDA or ROCm device it is copied to pinned memory in the order of the program's own stream, so that whatever the
program does with the tensor afterwards, the number is that of the moment. It has arrived once the device has come by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.modes import out_of_modes


class Arriving:
    """The number in a tensor of one element.

    Args:
        tensor: Of any shape, real, on any device that holds values.
    """

    __slots__ = ("_event", "_tensor", "_value")

    def __init__(self, tensor: Tensor) -> None:
        self._value: float | None = None
        self._tensor: Tensor | None = None
        self._event: Any = None
        out_of_modes(self._depart, tensor)

    def _depart(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            self._value = float(tensor.item())
        elif tensor.is_cuda:
            with torch.cuda.device(tensor.device):
                self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                self._tensor.copy_(tensor, non_blocking=True)
                cuda: Any = torch.cuda
                self._event = cuda.Event()
                self._event.record()
        else:
            self._tensor = tensor.clone()

    @property
    def is_there(self) -> bool:
        """Whether `value` need not wait. Of a device without events it is not known, and taken for granted."""
        return self._event is None or bool(self._event.query())

    @property
    def value(self) -> float:
        """The number; NaN and Inf as they are. Waits until it is there."""
        if self._value is None:
            if self._event is not None:
                self._event.synchronize()
            assert self._tensor is not None
            self._value = float(out_of_modes(self._tensor.item))
            self._tensor = self._event = None
        return self._value


class Later:
    """What follows from numbers that may still be on their way.

    Args:
        numbers: It follows from these; from none, it is None.
        made_of: Makes it of their values.
    """

    def __init__(self, numbers: Sequence[Arriving], made_of: Callable[[Sequence[float]], float]) -> None:
        self._numbers = numbers
        self._made_of = made_of

    @property
    def is_there(self) -> bool:
        return all(number.is_there for number in self._numbers)

    @property
    def value(self) -> float | None:
        """Waits until the numbers are there."""
        return self._made_of([number.value for number in self._numbers]) if self._numbers else None


def can_depart(tensor: Tensor) -> bool:
    """Whether a number can be read of this tensor now: not without values, nor within the capture of a CUDA graph."""
    if tensor.is_meta or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
        return False
    return type(tensor) in (Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def as_json(number: float | None) -> float | str | None:
    """As JSON can have it: "nan", "inf" and "-inf" as text."""
    return number if number is None or math.isfinite(number) else str(float(number))
