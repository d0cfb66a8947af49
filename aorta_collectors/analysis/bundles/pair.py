"""One tensor at one point on both sides, and what many such pairs come to in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.bundles.difference import Difference
from aorta_collectors.analysis.bundles.judge import Judgement
from aorta_collectors.analysis.bundles.observation import Observation


@dataclass(frozen=True)
class Counts:
    """Observations by what they came to.

    Attributes:
        matched: Of these, `identical` are known to be the same bit for bit, and `below_atol` match, unequal, since the
            absolute tolerance that was asked for is twice as large as all their elements, or more.
    """

    matched: int = 0
    identical: int = 0
    mismatched: int = 0
    missing_in_baseline: int = 0
    missing_in_candidate: int = 0
    inconclusive: int = 0
    below_atol: int = 0

    @property
    def all_matched(self) -> bool:
        """Whether something was compared, and nothing of it differs, is missing or cannot be told."""
        return self.matched > 0 and self.matched == self.total

    @property
    def total(self) -> int:
        missing = self.missing_in_baseline + self.missing_in_candidate
        return self.matched + self.mismatched + missing + self.inconclusive

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + its for mine, its in zip(asdict(self).values(), asdict(other).values(), strict=True)))


@dataclass(frozen=True)
class Pair:
    """One tensor at one point, on both sides; one of the two is None where it is missing."""

    baseline: Observation | None
    candidate: Observation | None
    judgement: Judgement

    @property
    def either(self) -> Observation:
        found = self.baseline or self.candidate
        assert found is not None
        return found

    @property
    def state(self) -> str:
        return self.judgement.state

    @property
    def difference(self) -> Difference | None:
        return self.judgement.difference

    @property
    def has_other_dtype(self) -> bool:
        """Whether both sides have it, and in different dtypes."""
        a, b = self.baseline, self.candidate
        return a is not None and b is not None and a.dtype != b.dtype

    @property
    def is_below_atol(self) -> bool:
        return self.difference is not None and self.difference.below_atol

    @property
    def missing_in(self) -> str | None:
        if self.baseline is None:
            return "baseline"
        return "candidate" if self.candidate is None else None

    def to_json(self) -> dict[str, Any]:
        either = self.either
        return {
            **{name: getattr(either, name) for name in ("name", "invocation", "step", "point", "layer", "module_type")},
            "kind": either.kind,
            "direction": either.direction,
            "state": self.state,
            "reason": self.judgement.reason,
            "missing_in": self.missing_in,
            "baseline": None if self.baseline is None else self.baseline.to_json(),
            "candidate": None if self.candidate is None else self.candidate.to_json(),
            "difference": None if self.difference is None else self.difference.to_json(),
        }
