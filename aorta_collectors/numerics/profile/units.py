"""Dead and saturated units of activations: outputs that were zero, or at an end, in all that was looked at.

A unit is an entry of the last dimension; of images, and of sequences beside a convolution, a channel. Every tenth step
is looked at. Where the tensors are on a device, the units are counted there and the numbers come without being waited
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.numerics.arriving import Arriving, can_depart
from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.layers.saturation import ends_of_module
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.observe.modes import out_of_modes
from aorta_collectors.observe.tensor_stats import Ends

_EVERY = 10
_MOST = 5000  # activations; a program may make ever new models
_IMAGE_DIMS = (4, 5)
#: Modules whose output is exactly zero over a part of what they are given; others of that kind are called so.
_ZEROING = (nn.ReLU, nn.ReLU6, nn.Threshold, nn.Hardswish, nn.Hardshrink, nn.Softshrink)


class _Units:
    """Of one activation.

    Attributes:
        dead, saturated: Whether each unit was so in all calls so far; None where that is not asked of the module.
    """

    def __init__(self, module: nn.Module, brick: Brick) -> None:
        self.zeroes = isinstance(module, _ZEROING) or "relu" in type(module).__name__.lower()
        self.ends: Ends | None = ends_of_module(module)
        self.dead: Tensor | None = None
        self.saturated: Tensor | None = None
        self.is_new = False  # since it was counted
        self._by_last = isinstance(module, (nn.Softmax, nn.Softmin, nn.LogSoftmax))
        parent = brick.parent.module() if brick.parent is not None else None
        self._beside_convolution = parent is not None and any(
            isinstance(part, nn.modules.conv._ConvNd) for part in parent.children()
        )
        self._counted: dict[str, Arriving] = {}
        self._known: dict[str, int] = {}

    def look(self, output: Tensor) -> None:
        dim = 1 if self._has_channels(output) else output.dim() - 1
        others = [other for other in range(output.dim()) if other != dim]
        if self.zeroes:
            self.dead = _both(self.dead, _all(output == 0, others))
        if self.ends is not None:
            beyond = (output <= self.ends.low) | (output >= self.ends.high)
            self.saturated = _both(self.saturated, _all(beyond, others))
        self.is_new = True

    def _has_channels(self, output: Tensor) -> bool:
        if self._by_last:
            return False
        return output.dim() in _IMAGE_DIMS or (output.dim() == 3 and self._beside_convolution)

    def count(self) -> None:
        """Have the units counted that are dead and saturated so far."""
        self.is_new = False
        self._take()
        for name, mask in (("dead_units", self.dead), ("saturated_units", self.saturated)):
            if mask is not None and name not in self._counted:
                self._known["units"] = mask.numel()
                self._counted[name] = Arriving(mask.sum())

    def _take(self) -> None:
        for name in [name for name, number in self._counted.items() if number.is_there]:
            self._known[name] = int(self._counted.pop(name).value)

    def fields(self) -> Mapping[str, int]:
        self._take()
        return dict(self._known)


class UnitWatch(Part):
    """Looks at the outputs of activation modules."""

    def __init__(self) -> None:
        self._units: dict[str, _Units] = {}
        self._looks = False

    def wants(self, brick: Brick) -> bool:
        module = brick.module()
        if module is None or not brick.is_leaf or len(self._units) >= _MOST:
            return False
        units = _Units(module, brick)
        if not units.zeroes and units.ends is None:
            return False
        self._units[brick.layer] = units
        return True

    def step_began(self, step: int) -> None:
        self._looks = step % _EVERY == 1

    def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
        if not self._looks or not isinstance(result, Tensor) or not result.is_floating_point():
            return
        if result.dim() == 0 or not result.numel() or not can_depart(result):
            return
        with torch.no_grad():
            out_of_modes(self._look, brick, result)  # those of the program are not to see it

    def _look(self, brick: Brick, result: Tensor) -> None:
        self._units[brick.layer].look(result.detach())

    def step_ended(self, trace: StepTrace) -> None:
        if self._looks:
            for units in self._units.values():
                if units.is_new:
                    out_of_modes(units.count)

    def of(self, layer: str) -> Mapping[str, int]:
        """`units`, `dead_units` and `saturated_units` of a layer, as far as they are known; nothing of other layers."""
        units = self._units.get(layer)
        return units.fields() if units is not None else {}


def _all(mask: Tensor, dims: list[int]) -> Tensor:
    return mask.all(dim=dims) if dims else mask


def _both(before: Tensor | None, now: Tensor) -> Tensor:
    """In both; of a module whose width changes from call to call, in what was looked at last."""
    if before is None or before.shape != now.shape or before.device != now.device:
        return now
    return before & now
