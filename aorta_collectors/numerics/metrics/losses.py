"""The loss of a step: the scalar that its backward pass starts from, before a GradScaler has scaled it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from aorta_collectors.numerics.arriving import Arriving, Later, can_depart
from aorta_collectors.observe.modes import out_of_modes

_MOST_NUMBERS = 10_000  # of a program that trains without a model, so that nobody asks for them
_MOST_SCALED = 100  # outputs that were scaled, and no backward pass has begun from yet


class Losses:
    """Reads losses as backward passes begin.

    Where one pass starts from several scalars, its loss is their sum, as their gradients are summed. Of several passes
    in a step it is the mean. A pass that starts from anything else, such as a stage of a pipeline, has no loss.
    """

    def __init__(self) -> None:
        self._num_passes = 0
        self._numbers: list[Arriving] = []
        # None for what was scaled and is no scalar.
        self._unscaled: deque[Arriving | None] = deque(maxlen=_MOST_SCALED)

    def forget(self) -> None:
        """A step begins: what was scaled before it was in vain."""
        self._unscaled.clear()

    def scaled(self, outputs: Any) -> None:
        """A GradScaler is about to scale a tensor, or several in an iterable that can be read more than once."""
        if isinstance(outputs, Tensor):
            self._unscaled.append(_number(outputs))
        elif isinstance(outputs, (tuple, list)):
            for output in outputs:
                self.scaled(output)

    def began(self, tensors: Iterable[Tensor]) -> None:
        """A backward pass begins from these. What was scaled is taken to have become them, one by one."""
        found = [self._unscaled.popleft() if self._unscaled else _number(tensor) for tensor in tensors]
        numbers = [number for number in found if number is not None]
        if len(self._numbers) >= _MOST_NUMBERS:
            self.take()
        if numbers:
            self._num_passes += 1
            self._numbers += numbers

    def take(self) -> Later:
        """The loss since this was last asked."""
        num_passes, numbers = self._num_passes, self._numbers
        self._num_passes, self._numbers = 0, []

        def mean(values: Sequence[float]) -> float:
            return sum(values) / num_passes

        return Later(numbers, mean)


def _number(tensor: Tensor) -> Arriving | None:
    return out_of_modes(_read, tensor)


def _read(tensor: Tensor) -> Arriving | None:
    if tensor.numel() != 1 or not tensor.is_floating_point() or not can_depart(tensor):
        return None
    return Arriving(tensor)
