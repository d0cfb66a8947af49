"""What the floating-point types of records can hold, without torch: a report is read where there is none.

The numbers are those of torch.finfo.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Limits(NamedTuple):
    """Of one dtype.

    Attributes:
        max: Largest finite number.
        eps: Distance from 1 to the next larger number.
        tiny: Smallest normal number.
    """

    max: float
    eps: float
    tiny: float


_FLOAT32 = Limits(3.4028234663852886e38, 2.0**-23, 2.0**-126)
_FLOAT64 = Limits(1.7976931348623157e308, 2.0**-52, 2.0**-1022)

#: By the text that a record has in `dtype`.
LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "torch.float64": _FLOAT64,
        "torch.complex128": _FLOAT64,
        "torch.float32": _FLOAT32,
        "torch.complex64": _FLOAT32,
        "torch.float16": Limits(65504.0, 2.0**-10, 2.0**-14),
        "torch.bfloat16": Limits(3.3895313892515355e38, 2.0**-7, 2.0**-126),
        "torch.float8_e4m3fn": Limits(448.0, 2.0**-3, 2.0**-6),
        "torch.float8_e5m2": Limits(57344.0, 2.0**-2, 2.0**-14),
        "torch.float8_e4m3fnuz": Limits(240.0, 2.0**-3, 2.0**-7),
        "torch.float8_e5m2fnuz": Limits(57344.0, 2.0**-3, 2.0**-15),
    }
)


def headroom(magnitude: float | None, dtype: str | None) -> float | None:
    """Bits from a magnitude up to the dtype's largest number; None where that is not known, and for 0."""
    limits = LIMITS.get(dtype or "")
    if limits is None or magnitude is None or magnitude <= 0:
        return None
    return math.log2(limits.max) - math.log2(magnitude)
