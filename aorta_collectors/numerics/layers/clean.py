"""A tensor of a layer that held nothing bad: its statistics, or the tensor itself as long as nothing has changed it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.layers.layer_reading import LayerReading
from aorta_collectors.observe.tensor_stats import TensorStats


class Clean(NamedTuple):
    """An output of a layer, or the gradient of one.

    Attributes:
        seen: Its statistics; None where they were not taken.
        tensor: Gives the tensor; None where it is gone.
        version: Of the tensor when it was clean.
    """

    brick: Brick
    path: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    seen: TensorStats | None
    tensor: Callable[[], Tensor | None]
    version: int

    @classmethod
    def read(cls, reading: LayerReading) -> Clean:
        return cls(reading.brick, reading.path, reading.dtype, reading.shape, reading.stats, _gone, 0)

    @classmethod
    def unread(cls, brick: Brick, path: str, tensor: Tensor, *, hold: bool) -> Clean:
        """
        Args:
            hold: Whether the tensor is to stay, rather than to go when the program lets it go.
        """
        if tensor.is_inference():  # torch does not tell whether it was changed
            return cls(brick, path, tensor.dtype, tuple(tensor.shape), None, _gone, 0)
        kept: Callable[[], Tensor | None] = (lambda: tensor) if hold else weakref.ref(tensor)
        return cls(brick, path, tensor.dtype, tuple(tensor.shape), None, kept, tensor._version)

    def held(self) -> Clean:
        """The same with the tensor, as long as this is there."""
        tensor = self.tensor()
        return self if tensor is None else self._replace(tensor=lambda: tensor)

    def let_go(self) -> Clean:
        """The same without the tensor."""
        return self._replace(tensor=_gone)

    def stats(self, read: Callable[[Tensor], TensorStats | None]) -> TensorStats | None:
        """What `read` says of the tensor, if it was not read before; None where it is gone, or no longer the same."""
        if self.seen is not None:
            return self.seen
        tensor = self.tensor()
        return read(tensor) if tensor is not None and tensor._version == self.version else None


def _gone() -> None:
    return None
