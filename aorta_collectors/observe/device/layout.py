"""How a strided tensor lies in memory, in as few dimensions as tell all of it."""

from __future__ import annotations

from torch import Tensor


def collapsed(values: Tensor, *, in_order: bool) -> list[tuple[int, int]]:
    """(size, stride) of each dimension that is left once neighbours that lie one after the other are joined.

    Args:
        in_order: Keep the elements in row-major order. Otherwise dimensions may change places, so that a transposed
            tensor is read as it lies.

    Returns:
        Outermost first, strides in elements. Empty for elements without gaps, which need no strides.
    """
    if values.is_contiguous():
        return []
    dims = [(size, stride) for size, stride in zip(values.shape, values.stride(), strict=True) if size > 1]
    if not in_order:
        dims.sort(key=lambda dim: -dim[1])
    joined: list[tuple[int, int]] = []
    for size, stride in dims:
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return [] if len(joined) < 2 and all(stride == 1 for _, stride in joined) else joined


def span(dims: list[tuple[int, int]]) -> int:
    """How far the last element is from the first one, in elements."""
    return sum((size - 1) * stride for size, stride in dims)
