"""What is concluded of the ranks of one run: whether they have the same tensors, where they part, and which differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aorta_collectors.analysis.bundles.bundle import bundles_in
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.judge import MISMATCHED
from aorta_collectors.analysis.bundles.pair import Pair
from aorta_collectors.analysis.bundles.ranks import Across, RankComparison, compare_ranks
from aorta_collectors.analysis.captures import TENSORS
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.evidence import Evidence
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, counted, numbers, showing
from aorta_collectors.investigate.report.subjects import Subject, with_collector
from aorta_collectors.investigate.report.values import elements
from aorta_collectors.report.tensors_words import place
from aorta_collectors.report.wording import text


@dataclass(frozen=True)
class OfRanks:
    """The ranks of one subject against each other; `error` says why nothing of them could be."""

    subject: Subject
    comparisons: tuple[RankComparison, ...]
    error: str = ""


def compare_all_ranks(subjects: Sequence[Subject], criterion: Criterion) -> list[OfRanks]:
    """Of each subject with several ranks."""
    found = []
    for subject in with_collector(subjects, TENSORS):
        try:
            bundles = bundles_in(subject.captures(TENSORS))
        except ArtifactError:
            continue  # what cannot be read at all is a gap
        if len({bundle.rank for bundle in bundles}) > 1:
            try:
                found.append(OfRanks(subject, tuple(compare_ranks(bundles, criterion))))
            except ArtifactError as error:
                # The trial it begins with is the only one there is, and its name says nothing here.
                found.append(OfRanks(subject, (), str(error).removeprefix(f"{bundles[0].trial.label}: ")))
    return found


def conclude_ranks(found: Sequence[OfRanks], evidence: Sequence[Evidence]) -> Iterator[Conclusion]:
    """One conclusion for each different outcome."""
    by_sentence: dict[tuple[str, Standing], list[Subject]] = {}
    for each in found:
        for comparison in each.comparisons:
            by_sentence.setdefault((_of_ranks(comparison), Standing.OBSERVED), []).append(each.subject)
        if each.error:
            told = (
                f"Ranks were not held against each other: {text(each.error)}. What their layers return differs by "
                "nature where each has its own part of a batch."
            )
            by_sentence.setdefault((told, Standing.OPEN), []).append(each.subject)
    for (sentence, standing), subjects in by_sentence.items():
        files = [path for subject in subjects for path in subject.files_of(TENSORS)]
        shown = showing(evidence, subjects, verb=("tensors", "compare"))
        of_ranks = tuple(each.name for each in evidence if each.name in shown and "--ranks" in each.view.words)
        labels = numbers(dict.fromkeys(subject.label for subject in subjects))
        yield Conclusion(f"{sentence} Seen in {labels}.", standing, of_ranks, tuple(files))


def _of_ranks(comparison: RankComparison) -> str:
    first = comparison.first_divergence
    ranks = numbers(comparison.ranks)
    if first is None:
        if comparison.all_matched:
            return f"Ranks {ranks} agree in {text(comparison.what)}."
        return f"Whether ranks {ranks} agree in {text(comparison.what)} could not be told for all of it."
    outliers = first.outliers
    if outliers:
        who = f"rank {numbers(outliers)} differs from the others"
    else:
        groups = " | ".join(numbers(group) for group in first.groups)
        who = f"ranks differ ({groups}), and no majority says which is right"
    words = [f"Ranks {ranks} part first at {place(first.observation)}: {who}", *_apart(first, comparison.criterion)]
    before = counted(comparison.matched_before, "observation")
    words.append(f"of {text(comparison.what)}, {before} before it match on all ranks")
    return "; ".join(words) + "."


def _apart(first: Across, criterion: Criterion) -> Iterator[str]:
    """How far apart the ranks are that are furthest apart there, the elements themselves first."""
    differing = {rank: pair for rank, pair in first.pairs.items() if pair.state == MISMATCHED}
    rank, pair = max(differing.items(), key=lambda item: _largest(item[1]))
    difference, other = pair.difference, first.groups[0][0]
    if difference is None or difference.index is None:
        yield f"rank {rank} against rank {other}: {text(pair.judgement.reason)}"
        return
    yield elements(difference, f"rank {other}", f"rank {rank}")
    yield f"{difference.outside} of {difference.numel} elements are outside of the criterion ({criterion.describe()})"


def _largest(pair: Pair) -> float:
    return (pair.difference.largest_absolute or 0.0) if pair.difference is not None else 0.0
