"""One name over its invocations: over steps, over calls within them, or over replays of a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.bundles.bundle import Bundle, pairs_of
from aorta_collectors.analysis.bundles.compare import Progress, judged_pairs
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.judge import MATCHED, MISMATCHED
from aorta_collectors.analysis.bundles.pair import Pair
from aorta_collectors.analysis.bundles.trend import Trend, trend
from aorta_collectors.errors import ArtifactError


@dataclass(frozen=True)
class Series:
    """One name in two processes.

    Attributes:
        pairs: By invocation.
        notes: What could not be read, a sentence each.
    """

    name: str
    baseline: Bundle
    candidate: Bundle
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...] = ()

    @property
    def all_matched(self) -> bool:
        return all(pair.state == MATCHED for pair in self.pairs)

    @property
    def begins(self) -> Pair | None:
        """The first that does not match; None where none is known to differ."""
        return next((pair for pair in self.pairs if pair.state == MISMATCHED), None)

    @property
    def last_matched(self) -> Pair | None:
        """The last that matches before that."""
        begins = self.begins
        before = [pair for pair in self.pairs if begins is None or pair.either.invocation < begins.either.invocation]
        return next((pair for pair in reversed(before) if pair.state == MATCHED), None)

    @property
    def growth(self) -> Trend | None:
        """Of the largest absolute difference, by invocation, from where it begins; None of too few."""
        begins = self.begins
        if begins is None:
            return None
        points = [
            (pair.either.invocation, found)
            for pair in self.pairs
            if pair.either.invocation >= begins.either.invocation and (found := apart(pair)) is not None
        ]
        return trend([x for x, _ in points], [y for _, y in points])

    def to_json(self) -> dict[str, Any]:
        begins, last, growth = self.begins, self.last_matched, self.growth
        return {
            "name": self.name,
            "pair": {"baseline": self.baseline.to_json(), "candidate": self.candidate.to_json()},
            "all_matched": self.all_matched,
            "begins": None if begins is None else begins.either.invocation,
            "last_matched": None if last is None else last.either.invocation,
            "growth_per_invocation": None if growth is None else growth.to_json(),
            "points": [
                {
                    "invocation": pair.either.invocation,
                    "step": pair.either.step,
                    "graph": pair.either.graph,
                    "replay": pair.either.replay,
                    "state": pair.state,
                    "reason": pair.judgement.reason,
                    "baseline_abs_max": None if pair.baseline is None else pair.baseline.abs_max,
                    "candidate_abs_max": None if pair.candidate is None else pair.candidate.abs_max,
                    "largest_absolute": apart(pair),
                    "difference": None if pair.difference is None else pair.difference.to_json(),
                }
                for pair in self.pairs
            ],
            "notes": list(self.notes),
        }


def apart(pair: Pair) -> float | None:
    """The largest absolute difference: 0 of what is the same; None where values are not known."""
    if pair.judgement.identical:
        return 0.0
    return None if pair.difference is None else pair.difference.largest_absolute


def series(
    baseline: Sequence[Bundle],
    candidate: Sequence[Bundle],
    name: str,
    criterion: Criterion = Criterion(),  # noqa: B008  (a frozen value)
    progress: Progress | None = None,
) -> list[Series]:
    """Follow one name, in each pair of processes that has it.

    Raises:
        ArtifactError: No process has it, or lines cannot be read.
    """
    found = []
    for left, right in pairs_of(baseline, candidate)[0]:
        notes: list[str] = []
        judged, extra = judged_pairs(left, right, criterion, (name,), notes, progress)
        pairs = sorted((*judged, *extra), key=lambda pair: pair.either.invocation)
        for each in dict.fromkeys(pair.either.name for pair in pairs):
            of_name = tuple(pair for pair in pairs if pair.either.name == each)
            found.append(Series(each, left, right, of_name, tuple(notes)))
    if not found:
        raise ArtifactError(f"neither side has observed {name!r}; `aorta-collectors tensors list` says what there is")
    return found
