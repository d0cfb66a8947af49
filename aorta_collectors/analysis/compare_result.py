"""What comparing two captures comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.compare_pairs import Pair

# Below this part of the steps that both went through, what was compared says little about the rest.
_THIN = 0.1

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Counts:
    """Records by what they came to; of those that one side lacks, which side that is."""

    matched: int = 0
    mismatched: int = 0
    missing_in_a: int = 0
    missing_in_b: int = 0
    inconclusive: int = 0
    not_recorded_in_a: int = 0
    not_recorded_in_b: int = 0

    @property
    def all_matched(self) -> bool:
        """Whether something was compared and nothing of it differs, is missing or cannot be told."""
        differing = self.mismatched + self.missing_in_a + self.missing_in_b + self.inconclusive
        return self.matched > 0 and differing == 0

    @property
    def compared(self) -> int:
        return self.matched + self.mismatched + self.inconclusive


@dataclass(frozen=True)
class Steps:
    """Training steps and evaluations in which each side, and both, recorded something; and how many both began."""

    a: int
    b: int
    both: int
    begun: int

    @property
    def thin(self) -> bool:
        """Whether too few steps are recorded on both sides to say much about the others."""
        return self.both < _THIN * self.begun


@dataclass(frozen=True)
class Divergence:
    """A record that does not match.

    Attributes:
        place: The tensor, `training_step`, `step`, `invocation`, `reason` and `deviation`.
        a, b: Its numbers on both sides; None where a side has no record of it.
        before: The same tensor in up to three steps before, latest last: `training_step`, `a`, `b`.
    """

    place: Fields
    a: Fields | None
    b: Fields | None
    before: tuple[Fields, ...]


@dataclass(frozen=True)
class Compared:
    """One pair of processes.

    Attributes:
        first: The first mismatch.
        first_bad: The first tensor that is bad on one side alone.
        reasons: How many records did not match, and why: `status`, `reason`, `lacks` (the side without it), `count`.
        by_step: Steps from two before the first mismatch: `training_step`, `compared`, `mismatched`, `missing`,
            `inconclusive`, `deviation`.
        by_tensor: Tensors that do not match, in the order of where that begins: the tensor, `training_step` (there),
            `compared`, `mismatched`, `missing_in_a`, `missing_in_b`, `inconclusive`, `deviation`.
        num_steps, num_tensors: How many there are in all of the two.
    """

    pair: Pair
    counts: Counts
    steps: Steps
    first: Divergence | None
    first_bad: Divergence | None
    reasons: tuple[Fields, ...]
    by_step: tuple[Fields, ...]
    by_tensor: tuple[Fields, ...]
    num_steps: int
    num_tensors: int

    def to_json(self) -> dict[str, Any]:
        described = {
            side: {
                "cell": member.trial.cell,
                "trial": member.trial.trial,
                "rank": member.process.rank,
                "process": member.process.stem,
                "artifacts": str(member.trial.artifacts),
            }
            for side, member in (("a", self.pair.a), ("b", self.pair.b))
        }
        return {
            "pair": described,
            "all_matched": self.counts.all_matched,
            "counts": asdict(self.counts),
            "steps": {**asdict(self.steps), "thin": self.steps.thin},
            "first_divergence": None if self.first is None else asdict(self.first),
            "first_bad_on_one_side": None if self.first_bad is None else asdict(self.first_bad),
            "reasons": list(self.reasons),
            "by_step": list(self.by_step),
            "num_steps": self.num_steps,
            "by_tensor": list(self.by_tensor),
            "num_tensors": self.num_tensors,
        }


@dataclass(frozen=True)
class Comparison:
    """All pairs of two sides."""

    pairs: tuple[Compared, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def all_matched(self) -> bool:
        """Whether every pair matched and nothing is without a counterpart."""
        return bool(self.pairs) and not (self.only_a or self.only_b) and all(p.counts.all_matched for p in self.pairs)

    @property
    def earliest(self) -> Compared | None:
        """The pair to look at first: the one that parts first, else one in which something is missing or unclear."""

        def place(compared: Compared) -> tuple[float, int]:
            step = compared.first.place["training_step"] if compared.first else float("inf")
            return step, int(compared.counts.all_matched)

        return min(self.pairs, key=place, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "all_matched": self.all_matched,
            "pairs": [compared.to_json() for compared in self.pairs],
            "unpaired": {"a": list(self.only_a), "b": list(self.only_b)},
        }
