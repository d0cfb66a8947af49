"""The device that the process's model runs on, for the summary."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import Part


class ModelDevice(Part):
    """Of the first root that has parameters or buffers, as it is when its first call has ended."""

    def __init__(self) -> None:
        self._device: str | None = None

    def wants(self, brick: Brick) -> bool:
        return False

    def root_left(self, brick: Brick, result: Any) -> None:
        module = brick.module()
        if self._device is None and module is not None:
            tensor = next(itertools.chain(module.parameters(), module.buffers()), None)
            self._device = None if tensor is None else str(tensor.device)

    def fields(self) -> Mapping[str, Any]:
        return {"device": self._device}
