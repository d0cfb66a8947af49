"""The ranks of one run against each other: what should be the same in all of them, and which of them differs.

With data parallel training, each rank holds the same parameters after the optimizer has stepped. Each rank stays one of
its own here: nothing is averaged over them. The one that differs is the one that most others do not agree with; of two
that differ, neither is known to be the right one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.bundles.bundle import Bundle, speaking
from aorta_collectors.analysis.bundles.compare import observed
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.difference import one_thread
from aorta_collectors.analysis.bundles.judge import (
    INCONCLUSIVE,
    MATCHED,
    MISMATCHED,
    MISSING,
    Judgement,
    Load,
    judge,
)
from aorta_collectors.analysis.bundles.observation import Key, Observation
from aorta_collectors.analysis.bundles.pair import Pair
from aorta_collectors.analysis.bundles.scales import Scales, scale_of, scales_of
from aorta_collectors.analysis.bundles.values import ValueFiles
from aorta_collectors.errors import ArtifactError

# In this order: what is the same on all ranks with data parallel training, and what may be.
_SAME = ("parameter", "gradient")
_SEVERITY = {MATCHED: 0, INCONCLUSIVE: 1, MISSING: 2, MISMATCHED: 3}


@dataclass(frozen=True)
class Across:
    """One tensor at one point on all ranks.

    Attributes:
        groups: Ranks whose tensors match each other, as the criterion has it, the largest group first.
        majority: Ranks of the group that has more than half of all; empty where none has.
        missing: Ranks that did not observe it.
        pairs: Each rank of the other groups against one of the first group, by rank.
    """

    observation: Observation
    groups: tuple[tuple[int, ...], ...]
    majority: tuple[int, ...]
    missing: tuple[int, ...]
    pairs: Mapping[int, Pair]

    @property
    def state(self) -> str:
        """The worst of what its ranks come to."""
        states = [pair.state for pair in self.pairs.values()] + ([MISSING] if self.missing else [])
        return max(states, key=_SEVERITY.__getitem__, default=MATCHED)

    @property
    def outliers(self) -> tuple[int, ...]:
        """Ranks that differ from the majority; empty where there is none."""
        return tuple(rank for rank, pair in self.pairs.items() if self.majority and pair.state == MISMATCHED)

    def to_json(self) -> dict[str, Any]:
        of = self.observation
        return {
            **{name: getattr(of, name) for name in ("name", "invocation", "step", "layer", "module_type", "kind")},
            "state": self.state,
            "groups": [list(group) for group in self.groups],
            "majority": list(self.majority),
            "outliers": list(self.outliers),
            "missing_on": list(self.missing),
            "pairs": {str(rank): pair.to_json() for rank, pair in self.pairs.items()},
        }


@dataclass(frozen=True)
class RankComparison:
    """The ranks of one trial.

    Attributes:
        what: What was compared, in words.
        counts: Tensors at points, by state.
        unmatched: Those that did not match, in the order of the first rank.
        outliers: How often each rank differed from the majority.
        matched_before: How many matched on all ranks before the first that did not.
    """

    label: str
    criterion: Criterion
    ranks: tuple[int, ...]
    what: str
    counts: Mapping[str, int]
    unmatched: tuple[Across, ...]
    outliers: Mapping[int, int]
    notes: tuple[str, ...]
    matched_before: int

    @property
    def all_matched(self) -> bool:
        return self.counts.get(MATCHED, 0) > 0 and not self.unmatched

    @property
    def first_divergence(self) -> Across | None:
        return next((each for each in self.unmatched if each.state == MISMATCHED), None)

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        first = self.first_divergence
        return {
            "label": self.label,
            "criterion": self.criterion.to_json(),
            "ranks": list(self.ranks),
            "what": self.what,
            "all_matched": self.all_matched,
            "counts": dict(self.counts),
            "outliers": {str(rank): count for rank, count in self.outliers.items()},
            "first_divergence": None if first is None else first.to_json(),
            "unmatched": [each.to_json() for each in self.unmatched[:most]],
            "num_unmatched": len(self.unmatched),
            "matched_before": self.matched_before,
            "notes": list(self.notes),
        }


def compare_ranks(
    bundles: Sequence[Bundle],
    criterion: Criterion = Criterion(),  # noqa: B008  (a frozen value)
    names: Sequence[str] = (),
) -> list[RankComparison]:
    """Compare the ranks of each trial.

    Args:
        names: Shell patterns of what should be the same in all; parameters where there are none, and where these were
            not observed, their gradients.

    Raises:
        ArtifactError: No trial has two ranks, nothing of the kind was observed, or lines cannot be read.
    """
    of_trial: dict[tuple[str, str, str], list[Bundle]] = {}
    for bundle in bundles:
        of_trial.setdefault(bundle.trial.key, []).append(bundle)
    several = [each for each in of_trial.values() if len({bundle.rank for bundle in each}) > 1]
    if not several:
        raise ArtifactError("there is one rank alone, and nothing to compare it with")
    return [_compared(each, criterion, names) for each in several]


def _compared(bundles: Sequence[Bundle], criterion: Criterion, names: Sequence[str]) -> RankComparison:
    notes: list[str] = []
    by_rank: dict[int, Bundle] = {}
    # Of several processes of a rank that of the last restart, and of those the one that began first.
    for bundle in sorted(speaking(bundles), key=lambda bundle: -bundle.process.line.restart):
        if by_rank.setdefault(bundle.rank, bundle) is not bundle:
            notes.append(f"rank {bundle.rank} has another process, {bundle.stem}, which is not compared")
    label = bundles[0].trial.label
    read = {rank: observed(bundle, names, notes) for rank, bundle in sorted(by_rank.items())}
    kinds = tuple(kind for kind in _SAME if any(each.kind == kind for side in read.values() for each in side))[:1]
    if not names and not kinds:
        raise ArtifactError(
            f"{label}: no parameters and no gradients of them were observed, which should be the same on all ranks, "
            "while outputs are of each rank's own data; observe them (points: after_step), or name what should be the "
            "same (--name)"
        )
    found: dict[Key, dict[int, Observation]] = {}
    for rank, side in read.items():
        for each in side:
            if names or each.kind in kinds:
                found.setdefault(each.identity, {})[rank] = each
    with contextlib.ExitStack() as stack:
        files = {rank: stack.enter_context(ValueFiles(bundle.path)) for rank, bundle in by_rank.items()}
        if any(each.file for of_ranks in found.values() for each in of_ranks.values()):
            stack.enter_context(one_thread())
        scales = {rank: scales_of(bundle, read[rank], names) for rank, bundle in by_rank.items()}
        across = [_across(of_ranks, tuple(read), criterion, files, scales) for of_ranks in found.values()]
    return RankComparison(
        label,
        criterion,
        tuple(read),
        f"{kinds[0]}s" if not names else ", ".join(names),
        Counter(each.state for each in across),
        tuple(each for each in across if each.state != MATCHED),
        Counter(rank for each in across for rank in each.outliers),
        tuple(notes),
        sum(each.state == MATCHED for each in itertools.takewhile(lambda each: each.state != MISMATCHED, across)),
    )


def _across(
    found: Mapping[int, Observation],
    ranks: Sequence[int],
    criterion: Criterion,
    files: Mapping[int, ValueFiles],
    scales: Mapping[int, Scales],
) -> Across:
    def judged(a: int, b: int) -> Judgement:
        return judge(found[a], found[b], criterion, _reader(files[a], files[b]), scale_of(found[a], scales[a]))

    groups: list[list[int]] = []
    for rank in sorted(found):
        home = next((group for group in groups if judged(group[0], rank).state == MATCHED), None)
        if home is None:
            groups.append([rank])
        else:
            home.append(rank)
    groups.sort(key=lambda group: (-len(group), group[0]))
    first = groups[0][0]
    pairs: dict[int, Pair] = {}
    for group in groups[1:]:
        pairs |= {rank: Pair(found[first], found[rank], judged(first, rank)) for rank in group}
    return Across(
        found[first],
        tuple(map(tuple, groups)),
        tuple(groups[0]) if 2 * len(groups[0]) > len(found) else (),
        tuple(rank for rank in ranks if rank not in found),
        dict(sorted(pairs.items())),
    )


def _reader(*sides: ValueFiles) -> Load:
    return lambda side, observation: sides[side].read(observation)
