"""When two tensors count as the same: bit for bit, within units in the last place, or within a tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from aorta_collectors.analysis.dtypes import LIMITS
from aorta_collectors.analysis.tolerance import DEFAULTS, EXACT, Tolerance

BITWISE, ULP, TOLERANCE = "bitwise", "ulp", "tolerance"

REAL, COMPLEX, EXACTLY = "floating-point", "complex", "integer"
_KINDS: Mapping[str, str] = MappingProxyType(
    {name.removeprefix("torch."): COMPLEX if "complex" in name else REAL for name in DEFAULTS}
)


def kind_of(dtype: str) -> str:
    """What sort of numbers a dtype has. Whatever is neither floating-point nor complex is compared exactly."""
    return _KINDS.get(dtype, EXACTLY)


def lower_precision(a: str, b: str) -> str:
    """Of two dtypes of one kind, the one whose numbers lie further apart; the first of two that are alike."""
    limits_a, limits_b = (LIMITS.get(f"torch.{name}") for name in (a, b))
    return b if limits_a is not None and limits_b is not None and limits_b.eps > limits_a.eps else a


@dataclass(frozen=True)
class Criterion:
    """What has to hold for each element.

    Attributes:
        kind: bitwise: the same bits, of the same dtype. ulp: at most `ulps` steps between numbers of the dtype.
            tolerance: |candidate - baseline| <= atol + rtol |baseline|. Of two dtypes, the one of lower precision
            counts. Integers and booleans have to be the same in any case.
        rtol: None for that of torch.testing.assert_close for the dtype.
        atol: None for that of torch.testing.assert_close times min(1, s), where s is the largest finite magnitude of
            the baseline's tensor; of a parameter's gradient, that of all gradients of its layer in the step (scales.py
            says why). torch's numbers are meant for values around 1: of gradients that are all below 1e-5, 1e-5 would
            let any pass, whatever their sign. Scaled, it bounds the error of an element by that of the largest: 1e-5 s
            is 84 eps of s in float32, room for the rounding of sums whose terms cancel out.
        equal_nan: Whether NaN equals NaN. Bit for bit, the same NaN always does.
    """

    kind: str = TOLERANCE
    ulps: int = 0
    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False

    @property
    def is_bitwise(self) -> bool:
        return self.kind == BITWISE

    @property
    def equals_nan(self) -> bool:
        """Whether a NaN on both sides is no difference."""
        return self.equal_nan or self.is_bitwise

    def tolerance(self, *dtypes: str, scale: float) -> Tolerance:
        """The wider of those of the dtypes, which are of one kind.

        Args:
            scale: s, see `atol`.
        """
        defaults = [DEFAULTS.get(f"torch.{dtype}", EXACT) for dtype in dtypes]
        if EXACT in defaults:
            return EXACT
        rtol = max(each.rtol for each in defaults) if self.rtol is None else self.rtol
        atol = max(each.atol for each in defaults) * min(1.0, scale) if self.atol is None else self.atol
        return Tolerance(rtol, atol)

    def describe(self) -> str:
        """For people."""
        if self.is_bitwise:
            return "bit for bit"
        nan = "NaN equals NaN" if self.equal_nan else "NaN equals nothing"
        if self.kind == ULP:
            return f"within {self.ulps} unit(s) in the last place; {nan}"
        default, scaled = "torch.testing's for each dtype", "scaled down for tensors smaller than 1"
        if self.rtol is None and self.atol is None:
            return f"tolerance {default}, atol {scaled}; {nan}"
        rtol = default if self.rtol is None else format(self.rtol, "g")
        atol = f"{default}, {scaled}" if self.atol is None else format(self.atol, "g")
        return f"rtol {rtol}, atol {atol}; {nan}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "text": self.describe()}
