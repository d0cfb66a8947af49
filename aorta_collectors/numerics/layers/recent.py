"""The tensors that were read last: one that comes again at once, unchanged, need not be read again.

A model's output is that of its last layer, the largest tensor of a language model, and the gradient of a block's output
is that of the last layer in it.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import NamedTuple

from torch import Tensor

from aorta_collectors.observe.finite import Finite
from aorta_collectors.observe.tensor_stats import Ends, TensorStats

# An output may have several tensors, such as a loss beside the logits.
_MOST = 4


class _Read(NamedTuple):
    tensor: weakref.ref[Tensor]
    version: int
    ends: Ends | None
    stats: TensorStats
    row: int | None


class Recent:
    """A few tensors of this step, with what was read of them: statistics, or the number of a row on a device.

    Those that were only found to be all finite are kept beside them.
    """

    def __init__(self) -> None:
        self._read: deque[_Read] = deque(maxlen=_MOST)
        self._finite: deque[tuple[weakref.ref[Tensor], int, Finite]] = deque(maxlen=_MOST)

    def find(self, tensor: Tensor, ends: Ends | None) -> tuple[TensorStats, int | None] | None:
        """What was read of the same tensor with the same ends; None if it was not, or was changed in place since."""
        for read in self._read:
            if read.tensor() is tensor and read.version == tensor._version and read.ends == ends:
                return read.stats, read.row
        return None

    def add(self, tensor: Tensor, ends: Ends | None, stats: TensorStats, row: int | None) -> None:
        if not tensor.is_inference():  # of those torch does not tell whether they were changed
            self._read.append(_Read(weakref.ref(tensor), tensor._version, ends, stats, row))

    def find_finite(self, tensor: Tensor) -> Finite | None:
        """What was found of the same tensor, if it was all finite, and was not changed in place since."""
        for finite, version, found in self._finite:
            if finite() is tensor and version == tensor._version:
                return found
        return None

    def add_finite(self, tensor: Tensor, found: Finite) -> None:
        if not tensor.is_inference():
            self._finite.append((weakref.ref(tensor), tensor._version, found))

    def clear(self) -> None:
        """The step is over: its rows have no meaning in the next."""
        self._read.clear()
        self._finite.clear()
