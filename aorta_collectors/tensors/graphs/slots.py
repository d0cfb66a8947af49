"""Where a CUDA graph leaves copies of what passes in it: memory that each of its replays writes anew.

Hooks run once, while the graph is captured, and what they queue becomes part of it. So a tensor is copied there, and
read when a replay has been queued, in the order of the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor


class Slots(Protocol):
    """Those of one graph, numbered from 0 as they come."""

    def put(self, tensor: Tensor) -> bool:
        """Have the graph that is captured copy `tensor`; returns whether it will.

        Args:
            tensor: Strided, detached, of class Tensor, on the device whose graph it is.
        """

    def read(self) -> Sequence[Tensor | None]:
        """What the replay that was queued last leaves, in order; None for what has been lost.

        To be read before the next replay is queued, in the order of the current stream.
        """

    def close(self) -> None:
        """The graph is gone."""


MakeSlots = Callable[[int], Slots]


class OwnSlots:
    """Copies in the graph's own memory, which is not used for anything else as long as they are held.

    Args:
        most_bytes: Of all of them.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._copies: list[Tensor] = []

    def put(self, tensor: Tensor) -> bool:
        size = tensor.numel() * tensor.element_size()
        if size > self._left:
            return False
        self._left -= size
        self._copies.append(tensor.clone(memory_format=torch.contiguous_format))
        return True

    def read(self) -> list[Tensor]:
        return list(self._copies)

    def close(self) -> None:
        self._copies.clear()
