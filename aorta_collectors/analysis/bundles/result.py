"""What comparing the tensors of two runs comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.bundles.bundle import Bundle
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.judge import MATCHED
from aorta_collectors.analysis.bundles.observation import Observation
from aorta_collectors.analysis.bundles.pair import Counts, Pair


@dataclass(frozen=True)
class Neighbour:
    """What was observed beside a divergence in the baseline, and what it came to."""

    observation: Observation
    state: str

    def to_json(self) -> dict[str, Any]:
        of = self.observation
        return {
            **{name: getattr(of, name) for name in ("name", "invocation", "step", "layer", "module_type", "kind")},
            "state": self.state,
        }


@dataclass(frozen=True)
class OtherDtype:
    """The first observation, in the baseline's order, whose dtype is another in the candidate.

    Attributes:
        count: How many such observations there are.
    """

    baseline: Observation
    candidate: Observation
    count: int

    def to_json(self) -> dict[str, Any]:
        of = self.baseline
        return {
            **{name: getattr(of, name) for name in ("name", "invocation", "step", "layer", "module_type", "kind")},
            "baseline": of.dtype,
            "candidate": self.candidate.dtype,
            "count": self.count,
        }


@dataclass(frozen=True)
class Divergence:
    """The first mismatch in the baseline's order.

    Attributes:
        before, after: Up to three observations on each side of it, in that order.
        before_it: How many observations before it came to what: `matched`, `missing`, `inconclusive`.
        forward_of_step: The same of the forward pass of its own step, where it is of the backward pass or the update.
        dtype_changed: The first pair up to there whose dtypes differ, if there is one.
    """

    pair: Pair
    before: tuple[Neighbour, ...]
    after: tuple[Neighbour, ...]
    before_it: Mapping[str, int]
    forward_of_step: Mapping[str, int]
    dtype_changed: tuple[Observation, Observation] | None

    @property
    def is_clean(self) -> bool:
        """Whether all that came before it is known to match."""
        return set(self.before_it) <= {MATCHED}

    def to_json(self) -> dict[str, Any]:
        changed = self.dtype_changed
        return {
            **self.pair.to_json(),
            "is_clean": self.is_clean,
            "before_it": dict(self.before_it),
            "forward_of_step": dict(self.forward_of_step),
            "before": [each.to_json() for each in self.before],
            "after": [each.to_json() for each in self.after],
            "dtype_changed": None
            if changed is None
            else {"name": changed[0].name, "invocation": changed[0].invocation, "dtypes": [of.dtype for of in changed]},
        }


@dataclass(frozen=True)
class ByName:
    """One name that did not match throughout.

    Attributes:
        worst: The mismatch with the largest absolute difference; the first one where none is known; None without one.
    """

    name: str
    first: Pair
    worst: Pair | None
    counts: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        found = self.worst.difference if self.worst else None
        return {
            "name": self.name,
            "first_step": self.first.either.step,
            "first_invocation": self.first.either.invocation,
            "counts": dict(self.counts),
            "worst_invocation": self.worst.either.invocation if self.worst else None,
            "worst": None if found is None else found.to_json(),
        }


@dataclass(frozen=True)
class Compared:
    """Two processes.

    Attributes:
        unmatched: Pairs that did not match, in the baseline's order, then what it lacks.
        firsts: The first mismatch of each direction of a step that has one.
        largest_matched: Of what matched and is not the same bit for bit, the pair that is furthest apart for the size
            of its elements.
        by_name: Names that did not match throughout, from where that begins.
        other_dtype: Where the first dtype differs, whether or not the values match; None where none does.
        conditions: What the manifests say differently of environment, seeds and options: key, baseline, candidate.
        notes: What could not be read, a sentence each.
    """

    baseline: Bundle
    candidate: Bundle
    counts: Counts
    unmatched: Sequence[Pair]
    firsts: Mapping[str, Divergence]
    largest_matched: Pair | None
    by_name: Sequence[ByName]
    other_dtype: OtherDtype | None = None
    conditions: Sequence[tuple[str, Any, Any]] = ()
    notes: Sequence[str] = ()

    @property
    def first(self) -> Divergence | None:
        """The first of all, in the baseline's order."""
        return min(self.firsts.values(), key=lambda each: each.pair.either.order, default=None)

    @property
    def reasons(self) -> list[tuple[str, str, str | None, int]]:
        """State, reason, the side that lacks it, and how many, the most first."""
        found = Counter((pair.state, pair.judgement.reason, pair.missing_in) for pair in self.unmatched)
        return [(*what, count) for what, count in found.most_common()]

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        first = self.first
        return {
            "pair": {"baseline": self.baseline.to_json(), "candidate": self.candidate.to_json()},
            "all_matched": self.counts.all_matched,
            "counts": asdict(self.counts),
            "first_divergence": None if first is None else first.to_json(),
            "first_by_direction": {name: each.to_json() for name, each in self.firsts.items()},
            "largest_matched": None if self.largest_matched is None else self.largest_matched.to_json(),
            "reasons": [
                {"state": state, "reason": reason, "missing_in": side, "count": count}
                for state, reason, side, count in self.reasons
            ],
            "by_name": [each.to_json() for each in self.by_name[:most]],
            "num_names": len(self.by_name),
            "unmatched": [pair.to_json() for pair in self.unmatched[:most]],
            "num_unmatched": len(self.unmatched),
            "other_dtype": None if self.other_dtype is None else self.other_dtype.to_json(),
            "conditions": [
                {"what": what, "baseline": baseline, "candidate": candidate}
                for what, baseline, candidate in self.conditions
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class TensorComparison:
    """All pairs of processes of two sides; ranks are never merged."""

    criterion: Criterion
    pairs: tuple[Compared, ...]
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()

    @property
    def counts(self) -> Counts:
        """Of all ranks together."""
        return sum((pair.counts for pair in self.pairs), Counts())

    @property
    def all_matched(self) -> bool:
        unpaired = self.only_baseline or self.only_candidate
        return bool(self.pairs) and not unpaired and all(pair.counts.all_matched for pair in self.pairs)

    @property
    def earliest(self) -> Compared | None:
        """The pair to look at first: the one that diverges first, else one in which something is missing or unclear."""

        def place(pair: Compared) -> tuple[float, float, bool]:
            either = pair.first.pair.either if pair.first else None
            at = (either.step, either.order) if either else (float("inf"), float("inf"))
            return *at, pair.counts.all_matched

        return min(self.pairs, key=place, default=None)

    @property
    def first_divergence(self) -> Divergence | None:
        earliest = self.earliest
        return earliest.first if earliest else None

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        """Plain JSON.

        Args:
            most: Rows of each list; None for all.
        """
        earliest, first = self.earliest, self.first_divergence
        return {
            "criterion": self.criterion.to_json(),
            "all_matched": self.all_matched,
            "counts": asdict(self.counts),
            "first_divergence": None
            if earliest is None or first is None
            else {"rank": earliest.baseline.rank, "process": earliest.baseline.label, **first.to_json()},
            "pairs": [pair.to_json(most) for pair in self.pairs],
            "unpaired": {"baseline": list(self.only_baseline), "candidate": list(self.only_candidate)},
        }
