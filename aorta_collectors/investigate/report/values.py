"""What is concluded of tensors: where two variants part first, or that they do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.bundles.bundle import bundles_in
from aorta_collectors.analysis.bundles.compare import compare
from aorta_collectors.analysis.bundles.criterion import BITWISE, Criterion
from aorta_collectors.analysis.bundles.difference import Difference
from aorta_collectors.analysis.bundles.pair import Counts
from aorta_collectors.analysis.bundles.result import Compared, Divergence, OtherDtype, TensorComparison
from aorta_collectors.analysis.captures import TENSORS
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.evidence import Evidence, repeated
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, counted, numbers, showing
from aorta_collectors.investigate.report.subjects import Subject, pairs_of, with_collector
from aorta_collectors.report.tensors_words import apart, below_atol, exactly, place
from aorta_collectors.report.wording import number, text

_COMPARE = ("tensors", "compare")
_AUTOCAST = "environment.settings.autocast."


@dataclass(frozen=True)
class OfPair:
    """The tensors of one pair; `error` says why they could not be compared."""

    pair: tuple[Subject, Subject]
    comparison: TensorComparison | None
    error: str = ""

    @property
    def diverged(self) -> tuple[Compared, Divergence] | None:
        """The first mismatch, and the processes that have it."""
        earliest = self.comparison.earliest if self.comparison is not None else None
        first = earliest.first if earliest is not None else None
        return (earliest, first) if earliest is not None and first is not None else None

    @property
    def place(self) -> tuple[int, str, int] | None:
        """Rank, name and invocation of the first mismatch."""
        found = self.diverged
        return None if found is None else (found[0].baseline.rank, *found[1].pair.either.identity)

    def to_json(self) -> dict[str, Any]:
        comparison = None if self.comparison is None else self.comparison.to_json(20)
        return {"pair": [subject.label for subject in self.pair], "comparison": comparison, "error": self.error}


def compare_pairs(subjects: Sequence[Subject], criterion: Criterion) -> list[OfPair]:
    """Of each repetition, the tensors of both variants."""
    return [_compared(pair, criterion) for pair in pairs_of(subjects, TENSORS)]


def compare_repetitions(subjects: Sequence[Subject]) -> list[OfPair]:
    """The first repetition of each variant against each later one of the same seed, bit for bit."""
    return [_compared(pair, Criterion(BITWISE)) for pair in repeated(with_collector(subjects, TENSORS))]


def _compared(pair: tuple[Subject, Subject], criterion: Criterion) -> OfPair:
    try:
        baseline, candidate = (bundles_in(subject.captures(TENSORS)) for subject in pair)
        return OfPair(pair, compare(baseline, candidate, criterion))
    except ArtifactError as error:
        return OfPair(pair, None, str(error))


def conclude_values(found: Sequence[OfPair], criterion: Criterion, evidence: Sequence[Evidence]) -> list[Conclusion]:
    """One conclusion for each place where pairs part first, and one for those that do not."""
    conclusions = []
    places = list(dict.fromkeys(each.place for each in found if each.place is not None))
    for at in places:
        these = [each for each in found if each.place == at]
        diverged = these[0].diverged
        assert diverged is not None
        sentence = f"{_diverges(*diverged, criterion)}{_left(these[0])}"
        conclusions.append(_cited(f"{sentence} {_seen(these, found)}", Standing.OBSERVED, these, evidence))
    clean = [each for each in found if each.comparison is not None and each.comparison.all_matched]
    if clean:
        counts = [each.comparison.counts for each in clean if each.comparison is not None]
        matched, identical = (
            dict.fromkeys(of) for of in zip(*((each.matched, each.identical) for each in counts), strict=True)
        )
        match = "observation matches" if list(matched) == [1] else "observations match"
        sentence = (
            f"No divergence at the points observed: {numbers(matched)} {match}, {numbers(identical)} of them bit for "
            f"bit (criterion: {criterion.describe()}).{_matched_for_size(clean)}{_matched_dtypes(clean)}"
        )
        conclusions.append(_cited(f"{sentence} {_seen(clean, found)}", Standing.OBSERVED, clean, evidence))
    unclear = [each for each in found if each.place is None and each not in clean]
    for each in unclear:
        conclusions.append(_cited(_undecided(each), Standing.OPEN, [each], evidence))
    return conclusions


def _matched_for_size(clean: Sequence[OfPair]) -> str:
    """What matches since it is small proves nothing."""
    counts = [of.comparison.counts for of in clean if of.comparison is not None]
    told = dict.fromkeys(below_atol(each) for each in counts if each.below_atol)
    return "".join(f" {sentence}" for sentence in told)


def _matched_dtypes(clean: Sequence[OfPair]) -> str:
    """Values that agree within a criterion may still be of other dtypes."""
    compared = [each for of in clean if of.comparison is not None for each in of.comparison.pairs]
    others = [each.other_dtype for each in compared if each.other_dtype is not None]
    told = list(_autocast(compared))
    if others:
        counts = list(dict.fromkeys(other.count for other in others))
        are = "is" if counts == [1] else "are"
        told.insert(0, f"{numbers(counts)} of them {are} of another dtype in the candidate{_since(others[0])}")
    sentence = "; ".join(told)
    return f" {sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _diverges(compared: Compared, first: Divergence, criterion: Criterion) -> str:
    pair, of = first.pair, first.pair.either
    rank = f", rank {compared.baseline.rank}" if compared.baseline.rank or _has_ranks(compared) else ""
    words = [f"First divergence: {place(of)}{rank}: {text(pair.judgement.reason)}"]
    sides = (pair.baseline, pair.candidate)
    # Bit for bit, or where the dtypes are of different kinds, they are the reason already.
    if pair.has_other_dtype and "dtypes" not in pair.judgement.reason:
        words.append(f"dtypes differ: {', '.join(text(side.dtype) for side in sides if side is not None)}")
    difference = pair.difference
    if difference is not None and difference.index is not None:
        words.append(elements(difference, "the baseline", "the candidate", of_dtypes=pair.has_other_dtype))
        words.append(
            f"{difference.outside} of {difference.numel} elements are outside of the criterion ({criterion.describe()})"
        )
    else:
        largest = [number(side.abs_max) if side is not None else "-" for side in sides]
        words.append(f"the largest magnitude is {largest[0]} in the baseline and {largest[1]} in the candidate")
    if first.is_clean:
        count = sum(first.before_it.values())
        last = f", and the last one is {place(first.before[-1].observation)}" if first.before else ""
        before = f"everything before it matches ({counted(count, 'observation')}){last}"
        words.append(before if count else "it is the first observation of all")
    else:
        words.append("what was observed before it is not all known to match, so that it may begin earlier")
    return "; ".join((*words, *_other_dtypes(compared, first), *_autocast([compared]))) + "."


def _other_dtypes(compared: Compared, first: Divergence) -> Iterator[str]:
    """How many tensors are of another dtype, and from where on, unless that is where they part first."""
    other = compared.other_dtype
    if other is not None:
        is_here = other.baseline.identity == first.pair.either.identity
        are = f"{counted(other.count, 'observation')} {'is' if other.count == 1 else 'are'}"
        yield f"{are} of another dtype in the candidate{'' if is_here else _since(other)}"


def _since(other: OtherDtype) -> str:
    of, its = other.baseline, other.candidate
    return f", the first is {place(of)}: {text(of.dtype)} and {text(its.dtype)}"


def _autocast(these: Sequence[Compared]) -> Iterator[str]:
    """That autocast was not set alike, which changes dtypes and with them values."""
    found = {
        what.removeprefix(_AUTOCAST): tuple("off" if side is None else text(side) for side in sides)
        for compared in these
        for what, *sides in compared.conditions
        if what.startswith(_AUTOCAST)
    }
    for device, (left, right) in found.items():
        yield f"autocast on {text(device)} is {left} in the baseline and {right} in the candidate"


def _ended_early(found: OfPair) -> str:
    failed = [subject.label for subject in found.pair if subject.ended_early]
    return f" Of {' and '.join(failed)}, which failed, what was left until then is compared." if failed else ""


def elements(difference: Difference, left: str, right: str, *, of_dtypes: bool = False) -> str:
    """The two elements at the worst place, and how far apart they are where both are numbers.

    Args:
        left, right: Whose they are.
        of_dtypes: Whether they are of different dtypes, of which one counts.
    """
    a, b = difference.baseline, difference.candidate
    told = f"at element {list(difference.index or ())} {left} has {exactly(a, b)} and {right} {exactly(b, a)}"
    if difference.there.absolute is None:
        return told
    absolute, relative, ulps = apart(difference)
    units = [f"relative {relative}"] if difference.there.relative is not None else []
    counted_in = f" of {difference.ulp_dtype}" if of_dtypes else ""
    units += [f"{ulps} ulp{counted_in}"] if difference.there.ulps is not None else []
    return f"{told}, which are {absolute} apart" + (f" ({', '.join(units)})" if units else "")


def _left(found: OfPair) -> str:
    """Of which runs only a part is compared, and what of the one lacks in the other."""
    told = _ended_early(found)
    counts = found.comparison.counts if found.comparison is not None else Counts()
    lacking = {"candidate": counts.missing_in_candidate, "baseline": counts.missing_in_baseline}
    parts = [f"{counted(count, 'observation')} missing in the {side}" for side, count in lacking.items() if count]
    return f"{told} There are {' and '.join(parts)}." if parts else told


def _has_ranks(compared: Compared) -> bool:
    return int(compared.baseline.manifest.get("world_size", 1)) > 1


def _undecided(found: OfPair) -> str:
    labels = " and ".join(subject.label for subject in found.pair)
    if found.comparison is None:
        return f"{labels} could not be compared: {text(found.error)}."
    counts = found.comparison.counts
    missing = counts.missing_in_baseline + counts.missing_in_candidate
    if not counts.total:
        return f"{labels} have no observation in common, so that nothing could be compared."
    parts = [f"{counts.matched} matched"]
    parts += [f"{missing} missing on one side"] if missing else []
    parts += [f"{counts.inconclusive} inconclusive"] if counts.inconclusive else []
    alone = (*found.comparison.only_baseline, *found.comparison.only_candidate)
    unpaired = f"; without a partner: {'; '.join(map(text, alone))}" if alone else ""
    return (
        f"No mismatch between {labels}, and no proof that there is none: of {counted(counts.total, 'observation')}, "
        f"{', '.join(parts)}{unpaired}.{_ended_early(found)}"
    )


def _seen(these: Sequence[OfPair], found: Sequence[OfPair]) -> str:
    seeds = [each.pair[0].seed for each in these]
    known = [seed for seed in seeds if seed is not None]
    of_seeds = f" ({'seed' if len(known) == 1 else 'seeds'} {numbers(known)})" if known else ""
    return f"Seen in {len(these)} of {counted(len(found), 'pair')}{of_seeds}."


def _cited(sentence: str, standing: Standing, these: Sequence[OfPair], evidence: Sequence[Evidence]) -> Conclusion:
    subjects = [subject for each in these for subject in each.pair]
    files = [path for subject in subjects for path in subject.files_of(TENSORS)]
    files += [path for each in these for path in _values_of(each)]
    shown = [name for each in these for name in showing(evidence, each.pair, verb=_COMPARE)]
    of_pairs = [each.name for each in evidence if each.name in shown and len(each.view.subjects) > 1]
    return Conclusion(sentence, standing, tuple(of_pairs), tuple(dict.fromkeys(files)))


def _values_of(found: OfPair) -> list[Path]:
    """The files of values that the elements of a first divergence are read from."""
    if found.diverged is None:
        return []
    compared, first = found.diverged
    sides = ((compared.baseline, first.pair.baseline), (compared.candidate, first.pair.candidate))
    return [bundle.path / of.file for bundle, of in sides if of is not None and of.file]
