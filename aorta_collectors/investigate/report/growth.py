"""What is concluded of memory: what grows, by how much a step and in which phase, absolute numbers first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from aorta_collectors.analysis.bundles.growth import AtPoint, Growth, OfMeasure, growth
from aorta_collectors.analysis.bundles.memory_compare import MeasurePair, MemoryComparison, RunPair, compare_memory
from aorta_collectors.analysis.bundles.memory_run import memory_runs_in
from aorta_collectors.analysis.captures import MEMORY
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.evidence import Evidence
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, counted, showing
from aorta_collectors.investigate.report.subjects import Subject, pairs_of, with_collector
from aorta_collectors.investigate.statistics import Sample
from aorta_collectors.report.memory_words import change, size, slope, unjudged, where, where_beyond
from aorta_collectors.report.wording import text

P = TypeVar("P", RunPair, Growth)


@dataclass(frozen=True)
class OfMemory:
    """The memory of one pair, or of one subject that has no partner; `error` says why it could not be read."""

    subjects: tuple[Subject, ...]
    comparison: MemoryComparison | None = None
    growths: tuple[Growth, ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "of": [subject.label for subject in self.subjects],
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "growths": [each.to_json() for each in self.growths],
            "error": self.error,
        }


def memory_of(subjects: Sequence[Subject]) -> list[OfMemory]:
    """Each pair compared, and what has no partner by itself."""
    pairs = pairs_of(subjects, MEMORY)
    found = []
    for pair in pairs:
        try:
            baseline, candidate = (memory_runs_in(subject.captures(MEMORY)) for subject in pair)
            found.append(OfMemory(pair, compare_memory(baseline, candidate)))
        except ArtifactError as error:
            found.append(OfMemory(pair, error=str(error)))
    compared = {id(subject) for pair in pairs for subject in pair}
    for subject in with_collector(subjects, MEMORY):
        if id(subject) not in compared:
            try:
                runs = memory_runs_in(subject.captures(MEMORY))
                found.append(OfMemory((subject,), growths=tuple(growth(run) for run in runs)))
            except ArtifactError as error:
                found.append(OfMemory((subject,), error=str(error)))
    return found


def conclude_memory(found: Sequence[OfMemory], evidence: Sequence[Evidence]) -> list[Conclusion]:
    """One conclusion for each number that grows or is larger, over all repetitions, and one for where nothing is."""
    conclusions = []
    pairs = _by_process(found, lambda each: each.comparison.pairs if each.comparison is not None else ())
    for label, of_process in pairs.items():
        conclusions += [_cited(*told, evidence) for told in _of_pairs(label, of_process)]
    runs = _by_process(found, lambda each: each.growths)
    for label, of_runs in runs.items():
        conclusions += [_cited(*told, evidence) for told in _of_growths(label, of_runs)]
    for each in (each for each in found if each.error):
        labels = " and ".join(subject.label for subject in each.subjects)
        sentence = f"The memory of {labels} could not be read: {text(each.error)}."
        conclusions.append(_cited(sentence, Standing.OPEN, [each], evidence))
    return conclusions


def _by_process(
    found: Sequence[OfMemory], processes: Callable[[OfMemory], Sequence[P]]
) -> dict[str, list[tuple[OfMemory, P]]]:
    """Of each process of the program, what each repetition has, by what tells it from others: nothing of a lone one."""
    by_label: dict[str, list[tuple[OfMemory, P]]] = {}
    for each in found:
        these = processes(each)
        names = [_process(process) for process in these]
        trials = {name.trial for name in names}
        for name, process in zip(names, these, strict=True):
            lone = "" if len(names) == 1 else name.rank if len(trials) == 1 else name.label
            by_label.setdefault(f"{lone}: " if lone else "", []).append((each, process))
    return by_label


#: A conclusion's text, its standing, and what it is about.
_Told = tuple[str, Standing, list[OfMemory]]


class _Name(NamedTuple):
    """What a process is called: among those of its trial, and among all."""

    trial: tuple[str, str, str]
    rank: str
    label: str


def _process(of: RunPair | Growth) -> _Name:
    run = of.baseline.run if isinstance(of, RunPair) else of.run
    rank = f"Rank {run.rank}" + ("" if run.stem == f"rank{run.rank}" else f", {text(run.stem)}")
    return _Name(run.trial.key, rank, text(run.label))


def _of_pairs(label: str, of_process: Sequence[tuple[OfMemory, RunPair]]) -> Iterator[_Told]:
    """What is found in any repetition, told over all that have this number: else chance would choose them."""
    every = [each for each, _ in of_process]
    measures = dict.fromkeys(found.measure for _, pair in of_process for found in pair.found)
    for measure in measures:
        having = [(each, found) for each, pair in of_process for found in pair.measures if found.measure == measure]
        seen = [(each, found) for each, found in having if _is_found(found)]
        growing = [found for _, found in seen if found.grows_more]
        numbers_of = [found for _, found in having]
        sentence = _grows_more(numbers_of, growing) if growing else _is_larger(numbers_of)
        told = f"{label}{sentence} Seen in {len(seen)} of {counted(len(having), 'pair')}."
        yield told, Standing.OBSERVED, [each for each, _ in having]
    quiet = [pair for _, pair in of_process if not pair.found]
    if quiet:
        short = next((side for pair in quiet for side in (pair.candidate, pair.baseline) if not side.is_judged), None)
        grows = ", and grows no more," if short is None else ""
        sentence = (
            f"{label}The candidate holds no more in use than the baseline{grows} by "
            f"{size(quiet[0].baseline.least_bytes)} or more."
        )
        if short is not None:
            sentence += f" Whether it grows more cannot be told: {unjudged(short)}."
        standing = Standing.OBSERVED if short is None else Standing.OPEN
        seen_in = f"Seen in {len(quiet)} of {counted(len(of_process), 'pair')}."
        yield f"{sentence} {seen_in} {_still(quiet)}".rstrip(), standing, every


def _is_found(found: MeasurePair) -> bool:
    return found.grows_more or found.is_more


def _still(quiet: Sequence[RunPair]) -> str:
    """What grows on both sides alike is no difference, and still is growth."""
    names = dict.fromkeys(str(measure.measure) for pair in quiet for measure in pair.baseline.growing)
    return f"The baseline itself grows, in {', '.join(names)}." if names else ""


def _grows_more(having: Sequence[MeasurePair], growing: Sequence[MeasurePair]) -> str:
    """Absolute numbers of first and last step, then what a step adds, then in which phase."""
    place = growing[0].lowest.place
    at = [pair for found in having for pair in found.points if pair.place == place]
    a, b = [pair.baseline for pair in at], [pair.candidate for pair in at]
    first, last = growing[0].lowest.candidate.first_step, growing[0].lowest.candidate.last_step
    how = "" if len(at) == 1 else f", medians of {counted(len(at), 'repetition')}"
    sentence = (
        f"At {text(place)}, {growing[0].measure} goes from {_size(b, 'first')} to {_size(b, 'last')} in the candidate, "
        f"and from {_size(a, 'first')} to {_size(a, 'last')} in the baseline (steps {first} to {last}{how}). "
    )
    if len(at) == 1:
        sentence += (
            f"The candidate grows by {slope(b[0].trend)} a step (95 % interval), the baseline by {slope(a[0].trend)}"
        )
    else:
        sentence += f"The candidate grows by {_slopes(b)} a step, the baseline by {_slopes(a)}"
    phases = Counter(phase.name for found in growing for phase in found.growing if len(found.growing) == 1)
    if not phases:
        return f"{sentence}; {where_beyond(growing[0])}."
    told = "; ".join(_of_phase(name, count, having, len(growing)) for name, count in phases.most_common())
    return f"{sentence}. Most of it is {told}."


def _of_phase(name: str, count: int, having: Sequence[MeasurePair], growing: int) -> str:
    these = [phase for found in having for phase in found.phases if phase.name == name]
    sides = [
        [side.total / side.times for side in of] for of in zip(*((p.candidate, p.baseline) for p in these), strict=True)
    ]
    candidate, baseline = (Sample(tuple(values)).describe(change) for values in sides)
    in_some = "" if count == growing else f" (in {count} of {growing})"
    return f"in {text(name)}{in_some}: {candidate} a step in the candidate, {baseline} in the baseline"


def _size(points: Sequence[AtPoint], end: str) -> str:
    return size(Sample(tuple(getattr(point, end) for point in points)).median)


def _slopes(points: Sequence[AtPoint]) -> str:
    """Of several repetitions: each is one value."""
    slopes = Sample(tuple(point.trend.slope for point in points if point.trend is not None))
    return f"a median of {slopes.describe(change)}"


def _is_larger(having: Sequence[MeasurePair]) -> str:
    place = having[0].lowest.place
    at = [pair for found in having for pair in found.points if pair.place == place]
    sides = [
        size(Sample(values).median)
        for values in zip(*((p.baseline.median, p.candidate.median) for p in at), strict=True)
    ]
    differences = Sample(tuple(pair.difference for pair in at)).describe(change)
    how = "medians over steps" + ("" if len(at) == 1 else f" and {counted(len(at), 'repetition')}")
    return (
        f"At {text(place)}, {having[0].measure} is {sides[0]} in the baseline and {sides[1]} in the candidate ({how}); "
        f"the candidate less the baseline, {'pair by pair: ' if len(at) > 1 else ''}{differences}."
    )


def _of_growths(label: str, of_process: Sequence[tuple[OfMemory, Growth]]) -> Iterator[_Told]:
    """The same of runs that have no partner."""
    every = [each for each, _ in of_process]
    measures = dict.fromkeys(found.measure for _, of in of_process for found in of.growing)
    for measure in measures:
        having = [(each, found) for each, of in of_process if (found := of.of(measure)) is not None]
        growing = [found for _, found in having if found.grows]
        sentence = _grows([found for _, found in having], growing)
        told = f"{label}{sentence} Seen in {len(growing)} of {counted(len(having), 'run')}."
        yield told, Standing.OBSERVED, [each for each, _ in having]
    quiet = [of for _, of in of_process if not of.growing]
    for judged in (True, False):
        these = [of for of in quiet if of.is_judged is judged]
        if these:
            still = " any more" if any(of.stopped for of in these) else ""
            sentence = (
                f"Nothing in use grows{still} by {size(these[0].least_bytes)} or more."
                if judged
                else f"Whether anything grows cannot be told: {unjudged(these[0])}."
            )
            filled = [_filled(each) for each in these[0].stopped]
            seen_in = f"Seen in {len(these)} of {counted(len(of_process), 'run')}."
            told = " ".join((f"{label}{sentence}", seen_in, *filled))
            yield told, Standing.OBSERVED if judged else Standing.OPEN, every


def _filled(of: OfMeasure) -> str:
    """What has grown and does so no more."""
    at = of.lowest
    return (
        f"{of.measure} has grown from {size(at.first)} in step {at.first_step} to {size(at.last)} in step "
        f"{at.last_step}, by {change(of.later_change)} in the later half of these: mostly filled once, as a cache is."
    )


def _grows(having: Sequence[OfMeasure], growing: Sequence[OfMeasure]) -> str:
    lowest = growing[0].lowest
    at = [point for found in having for point in found.points if point.place == lowest.place]
    how = "" if len(at) == 1 else f" (medians of {counted(len(at), 'repetition')})"
    by = f"{slope(lowest.trend)} a step (95 % interval)" if len(at) == 1 else f"{_slopes(at)} a step"
    places = Counter(where(found) for found in growing)
    told = "; ".join(
        text(place) + ("" if count == len(growing) else f" (in {count} of {len(growing)})")
        for place, count in places.most_common()
    )
    return (
        f"At {text(lowest.place)}, {growing[0].measure} goes from {_size(at, 'first')} in step {lowest.first_step} to "
        f"{_size(at, 'last')} in step {lowest.last_step}{how}. It grows by {by}, {told}."
    )


def _cited(sentence: str, standing: Standing, these: Sequence[OfMemory], evidence: Sequence[Evidence]) -> Conclusion:
    files = [path for each in these for subject in each.subjects for path in subject.files_of(MEMORY)]
    shown = [
        name
        for each in these
        for verb in (("memory", "compare"), ("memory", "show"))
        for name in showing(evidence, each.subjects, verb=verb)
    ]
    return Conclusion(sentence, standing, tuple(dict.fromkeys(shown)), tuple(dict.fromkeys(files)))
