"""How many steps between neighbouring numbers of a floating-point dtype lie between two tensors' elements.

The bits of such numbers, read as sign and magnitude, are in the order of the numbers: the next larger magnitude has the
next larger integer. So the distance is the difference of two integers, across zero their sum. +0 and -0 are one number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: Of two elements that no number of steps takes from one to the other: one is infinite or NaN, and the other is not the
#: same. Also the largest distance that is told.
FAR = 2**63 - 1


def distances(a: Tensor, b: Tensor, *, equal_nan: bool = False) -> Tensor:
    """Steps between elements.

    Args:
        a, b: Of one real floating-point dtype and one shape.
        equal_nan: Whether NaN is 0 steps from NaN.

    Returns:
        int64, of that shape: 0 for equal numbers, infinities of one sign among them; FAR beside an infinity or a NaN.
    """
    import torch

    width = torch.finfo(a.dtype).bits
    integers = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
    magnitudes, negatives = [], []
    for side in (a, b):
        bits = side.contiguous().view(integers).to(torch.int64)
        negatives.append(bits < 0)
        magnitudes.append(bits & (2 ** (width - 1) - 1))
    same_side = negatives[0] == negatives[1]
    total = magnitudes[0] + magnitudes[1]
    total = torch.where(total < 0, FAR, total)  # two of float64, each close to 2**63
    steps = torch.where(same_side, (magnitudes[0] - magnitudes[1]).abs(), total)
    wide_a, wide_b = a.to(torch.float64), b.to(torch.float64)
    far = ~(wide_a.isfinite() & wide_b.isfinite())
    steps = torch.where(far, FAR, steps)
    steps = torch.where(wide_a == wide_b, 0, steps)
    return torch.where(wide_a.isnan() & wide_b.isnan(), 0, steps) if equal_nan else steps
