"""The magnitude of a tensor, and what is bad in it: what `trajectory` and `layers` take from records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.dtypes import headroom

#: By severity.
KINDS = (None, "oob", "huge", "inf", "nan")

#: Of a record r: its channel; its direction where it has none.
ROLE = "coalesce(r.role, r.direction, '')"
#: Where a followed tensor was read, such as "copy"; empty for what belongs to a module.
PLACE = "CASE WHEN r.direction = 'pipeline' THEN concat_ws(' ', r.phase, nullif(r.checkpoint, '')) ELSE '' END"


def severity(name: str) -> str:
    """SQL: of the kind in a column, 0 where it is NULL."""
    cases = " ".join(f"WHEN '{kind}' THEN {index}" for index, kind in enumerate(KINDS) if kind)
    return f"CASE {name} {cases} ELSE 0 END"


#: Several records r of one tensor as one value.
AGGREGATES = f"""max(abs(r.finite_abs_max)) AS abs_max, min(r.finite_min) AS low, max(r.finite_max) AS high,
    sum(coalesce(r.nan_count, 0))::BIGINT AS nans, sum(coalesce(r.inf_count, 0))::BIGINT AS infs,
    sum(coalesce(r.huge_count, 0))::BIGINT AS huge, sum(coalesce(r.oob_count, 0))::BIGINT AS oob,
    sum(coalesce(r.numel, 0))::BIGINT AS numel, max({severity("r.kind")}) AS severity,
    arg_max(r.dtype, coalesce(r.finite_abs_max, 0)) AS dtype"""


@dataclass(frozen=True)
class Magnitude:
    """Of one tensor; of several calls or steps the extremes, and the sums of the counts.

    Attributes:
        abs_max, low, high: Of the finite elements; None where there are none.
        kind: The worst that is in it: nan, inf, huge or oob; None where it is clean.
    """

    abs_max: float | None
    low: float | None
    high: float | None
    nans: int
    infs: int
    huge: int
    oob: int
    numel: int
    kind: str | None
    dtype: str | None

    @property
    def headroom(self) -> float | None:
        """Bits up to the dtype's largest number; None where that is not known, or nothing differs from 0."""
        return headroom(self.abs_max, self.dtype)

    def as_json(self) -> dict[str, Any]:
        """By the names that records have for it."""
        return {
            "kind": self.kind,
            "finite_abs_max": self.abs_max,
            "finite_min": self.low,
            "finite_max": self.high,
            "headroom": self.headroom,
            "nan_count": self.nans,
            "inf_count": self.infs,
            "huge_count": self.huge,
            "oob_count": self.oob,
            "numel": self.numel,
            "dtype": self.dtype,
        }


def magnitude(row: Mapping[str, Any]) -> Magnitude:
    """Of a row with the columns of AGGREGATES."""
    names = ("abs_max", "low", "high", "nans", "infs", "huge", "oob", "numel")
    return Magnitude(**{name: row[name] for name in names}, kind=KINDS[row["severity"]], dtype=row["dtype"])
