"""How far two recorded numbers may differ and still count as equal, for each dtype.

The defaults are those of torch.testing.assert_close (torch/testing/_comparison.py, "default_tolerances"), written down
here since comparing needs no torch. It has none for float8: there rtol is 2 eps, as its 1.6e-2 for bfloat16 is. What is
no floating-point number is compared exactly, as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from aorta_collectors.analysis.dtypes import LIMITS


class Tolerance(NamedTuple):
    """Two numbers are equal if |a - b| <= atol + rtol max(|a|, |b|): neither side is the right one.

    Attributes:
        rtol: Relative to the larger of the two.
        atol: In the tensor's own unit.
    """

    rtol: float
    atol: float


_FLOAT8_ATOL = 1e-5
_FLOAT32, _FLOAT64 = Tolerance(1.3e-6, 1e-5), Tolerance(1e-7, 1e-7)

EXACT = Tolerance(0.0, 0.0)
#: By the text that a record has in `dtype`; EXACT where it is not among them.
DEFAULTS: Mapping[str, Tolerance] = MappingProxyType(
    {
        "torch.float64": _FLOAT64,
        "torch.complex128": _FLOAT64,
        "torch.float32": _FLOAT32,
        "torch.complex64": _FLOAT32,
        "torch.float16": Tolerance(1e-3, 1e-5),
        "torch.bfloat16": Tolerance(1.6e-2, 1e-5),
        **{
            name: Tolerance(2 * limits.eps, _FLOAT8_ATOL)
            for name, limits in LIMITS.items()
            if name.startswith("torch.float8")
        },
    }
)


def tolerances(rtol: float | None = None, atol: float | None = None) -> dict[str, Tolerance]:
    """The defaults, with one or both numbers replaced for every floating-point dtype."""
    return {
        name: Tolerance(default.rtol if rtol is None else rtol, default.atol if atol is None else atol)
        for name, default in DEFAULTS.items()
    }
