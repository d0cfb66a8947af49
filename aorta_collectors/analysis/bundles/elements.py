"""What holds for elements: numbers, (elements,), or complex ones by their parts, (elements, 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def magnitude(chunk: Tensor) -> float:
    """The largest of a chunk's elements that is finite; 0 where none is."""
    import torch

    wide = chunk.to(torch.float64)
    sizes = torch.linalg.vector_norm(wide, dim=1) if wide.dim() == 2 else wide.abs()
    return float(torch.where(sizes.isfinite(), sizes, 0.0).max())


def as_one(mask: Tensor) -> Tensor:
    """A complex number is as one of its parts is, unless both parts are."""
    return mask.all(dim=1) if mask.dim() == 2 else mask


def anywhere(mask: Tensor) -> Tensor:
    """Likewise, where one of its parts is enough."""
    return mask.any(dim=1) if mask.dim() == 2 else mask
