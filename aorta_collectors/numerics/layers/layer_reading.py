"""What was read of one tensor of a layer: its statistics, and the line that is written of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.observe.tensor_stats import TensorStats, dtype_name


class LayerReading(NamedTuple):
    """An output of a layer, or the gradient of one.

    Attributes:
        path: Which tensor of a structured output, as observe.tensors names them.
        is_mask: Whether -Inf alone, if that is what it holds, were put there by a mask.
    """

    brick: Brick
    direction: str
    path: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stats: TensorStats
    is_mask: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether it holds NaN or Inf that nobody put there."""
        stats = self.stats
        return not (stats.is_finite or (self.is_mask and stats.only_negative_infinite))

    def line(self, step: int, seq: int) -> dict[str, Any]:
        """As schemas/numerics.stats.json has it, without rank and process."""
        brick, stats = self.brick, self.stats
        return {
            "step": step,
            "seq": seq,
            "layer": brick.layer,
            "module_type": brick.module_type,
            "step_name": brick.step_name,
            "direction": self.direction,
            "tensor_path": self.path,
            "dtype": dtype_name(self.dtype),
            "shape": list(self.shape),
            "numel": stats.numel,
            "min": stats.finite_min,
            "max": stats.finite_max,
            "mean": stats.mean,
            "std": stats.std,
            "nan_count": stats.nan_count,
            "inf_count": stats.inf_count,
            "zero_fraction": stats.zero_fraction,
            "saturated_fraction": stats.saturated_fraction,
        }
