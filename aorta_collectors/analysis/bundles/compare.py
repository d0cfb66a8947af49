"""Where the tensors of two runs part: which match, which differ and how, and which differs first.

An observation is the same in two runs if its rank, its name and its invocation are. The order in which observations
were made is that of the program, and only says what came before what: that of the baseline is taken.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from aorta_collectors.analysis.bundles.bundle import Bundle, pairs_of
from aorta_collectors.analysis.bundles.conditions import conditions_of
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.difference import one_thread
from aorta_collectors.analysis.bundles.judge import (
    IDENTICAL,
    MATCHED,
    MISMATCHED,
    MISSING,
    Judgement,
    is_identical,
    judge,
)
from aorta_collectors.analysis.bundles.observation import (
    BACKWARD,
    DIRECTIONS,
    FORWARD,
    UPDATE,
    Key,
    Observation,
    observation_of,
)
from aorta_collectors.analysis.bundles.pair import Counts, Pair
from aorta_collectors.analysis.bundles.result import (
    ByName,
    Compared,
    Divergence,
    Neighbour,
    OtherDtype,
    TensorComparison,
)
from aorta_collectors.analysis.bundles.scales import scale_of, scales_of
from aorta_collectors.analysis.bundles.values import ValueFiles

_AROUND = 3
#: Told how much is done, and of how much.
Progress = Callable[[float, float], None]


def is_named(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of some patterns; any is where there are none. Brackets may be meant as they stand."""
    return not patterns or any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def compare(
    baseline: Sequence[Bundle],
    candidate: Sequence[Bundle],
    criterion: Criterion = Criterion(),  # noqa: B008  (a frozen value)
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> TensorComparison:
    """Compare the bundles of two sides, each with the one of its cell, trial and rank.

    Args:
        names: Shell patterns of the names that are compared; all where there are none.

    Raises:
        ArtifactError: Lines cannot be read.
    """
    pairs, only_baseline, only_candidate = pairs_of(baseline, candidate)
    compared = tuple(compare_bundles(*pair, criterion, names, progress) for pair in pairs)
    return TensorComparison(criterion, compared, only_baseline, only_candidate)


def compare_bundles(
    baseline: Bundle,
    candidate: Bundle,
    criterion: Criterion,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> Compared:
    """Compare two processes. Arguments and errors are those of `compare`."""
    notes: list[str] = []
    judged, extra = judged_pairs(baseline, candidate, criterion, names, notes, progress)
    return _result(baseline, candidate, judged, extra, notes)


def judged_pairs(
    baseline: Bundle,
    candidate: Bundle,
    criterion: Criterion,
    names: Sequence[str],
    notes: list[str],
    progress: Progress | None = None,
) -> tuple[list[Pair], list[Pair]]:
    """All observations of two processes, side by side, those that match among them.

    Args:
        notes: What could not be read is added.

    Returns:
        Those of the baseline in its order, and then those that only the candidate has.
    """
    of_sides: tuple[list[str], list[str]] = ([], [])
    ours = observed(baseline, names, of_sides[0])
    place = {each.identity: index for index, each in enumerate(ours)}
    states: list[Judgement | None] = [None] * len(ours)
    partners: dict[int, Observation] = {}
    extra: list[Observation] = []
    for theirs in observed(candidate, names, of_sides[1]):
        index = place.get(theirs.identity)
        if index is None:
            extra.append(theirs)
        else:
            partners[index] = theirs
            if is_identical(ours[index], theirs, criterion):
                states[index] = IDENTICAL
    scales = scales_of(baseline, ours, names)
    to_read = sorted(index for index in partners if states[index] is None)
    with ValueFiles(baseline.path) as left, ValueFiles(candidate.path) as right, contextlib.ExitStack() as stack:
        files = left, right
        if any(ours[index].file for index in to_read):
            stack.enter_context(one_thread())
        for done, index in enumerate(to_read):
            a, b = ours[index], partners[index]
            states[index] = judge(a, b, criterion, lambda side, each: files[side].read(each), scale_of(a, scales))
            if progress is not None:
                progress(done, len(to_read))
    for side, told in zip(("baseline", "candidate"), of_sides, strict=True):
        notes += [f"{side}, {note}" for note in told]
    _note_other_steps(ours, partners, notes)
    absent = Judgement(MISSING)
    judged = [Pair(each, partners.get(index), states[index] or absent) for index, each in enumerate(ours)]
    return judged, [Pair(None, each, absent) for each in extra]


def _note_other_steps(ours: Sequence[Observation], partners: Mapping[int, Observation], notes: list[str]) -> None:
    """Where one side calls a layer more often in a step, later invocations are of different steps."""
    moved = [index for index in sorted(partners) if ours[index].step != partners[index].step]
    if moved:
        a, b = ours[moved[0]], partners[moved[0]]
        notes.append(
            f"{len(moved)} observation(s) have the same name and invocation in different steps, from {a.name}, "
            f"invocation {a.invocation}, on: step {a.step} of the baseline, step {b.step} of the candidate"
        )


def observed(bundle: Bundle, names: Sequence[str], notes: list[str]) -> list[Observation]:
    """In their order. Of two with one identity, the first; that there is another is noted."""
    lines = bundle.lines
    found: dict[Key, Observation] = {}
    again = 0
    for each in map(observation_of, lines):
        if is_named(each.name, names) and found.setdefault(each.identity, each) is not each:
            again += 1
    notes += [f"{bundle.label}: {note}" for note in (*bundle.unfinished, *lines.notes)]
    if again:
        notes.append(f"{bundle.label}: {again} observation(s) have the name and invocation of an earlier one")
    return sorted(found.values(), key=lambda each: each.order)


def _result(
    baseline: Bundle, candidate: Bundle, judged: Sequence[Pair], extra: Sequence[Pair], notes: Sequence[str]
) -> Compared:
    states = Counter(pair.state for pair in judged)
    counts = Counts(
        matched=states[MATCHED],
        identical=sum(pair.judgement.identical for pair in judged),
        mismatched=states[MISMATCHED],
        missing_in_baseline=len(extra),
        missing_in_candidate=states[MISSING],
        inconclusive=states.total() - states[MATCHED] - states[MISMATCHED] - states[MISSING],
        below_atol=sum(pair.state == MATCHED and pair.is_below_atol for pair in judged),
    )
    unmatched = [pair for pair in (*judged, *extra) if pair.state != MATCHED]
    within = [pair for pair in judged if pair.state == MATCHED and _of_scale(pair) > 0]
    return Compared(
        baseline,
        candidate,
        counts,
        unmatched,
        _firsts(judged),
        max(within, key=_of_scale, default=None),
        _by_name(unmatched, judged),
        _other_dtype(judged),
        conditions_of(baseline.manifest, candidate.manifest),
        notes,
    )


def _other_dtype(judged: Sequence[Pair]) -> OtherDtype | None:
    changed = [pair for pair in judged if pair.has_other_dtype]
    return OtherDtype(*_sides(changed[0]), len(changed)) if changed else None


def _apart(pair: Pair) -> float:
    found = pair.difference
    return (found.largest_absolute or 0.0) if found is not None else 0.0


def _of_scale(pair: Pair) -> float:
    return pair.difference.of_scale if pair.difference is not None else 0.0


def _firsts(judged: Sequence[Pair]) -> dict[str, Divergence]:
    """The first mismatch of each direction, by direction."""
    found: dict[str, int] = {}
    for index, pair in enumerate(judged):
        if pair.state == MISMATCHED:
            found.setdefault(pair.either.direction, index)
            if len(found) == len(DIRECTIONS):
                break
    return {direction: _divergence(judged, index) for direction, index in sorted(found.items(), key=lambda it: it[1])}


def _divergence(judged: Sequence[Pair], index: int) -> Divergence:
    pair, before = judged[index], judged[:index]
    step = pair.either.step
    of_step = [each for each in before if each.either.step == step and each.either.direction == FORWARD]
    changed = (_sides(each) for each in judged[: index + 1] if each.has_other_dtype)
    return Divergence(
        pair,
        tuple(map(_neighbour, before[-_AROUND:])),
        tuple(map(_neighbour, judged[index + 1 : index + 1 + _AROUND])),
        Counter(each.state for each in before),
        Counter(each.state for each in of_step) if pair.either.direction in (BACKWARD, UPDATE) else {},
        next(changed, None),
    )


def _sides(pair: Pair) -> tuple[Observation, Observation]:
    assert pair.baseline is not None
    assert pair.candidate is not None
    return pair.baseline, pair.candidate


def _neighbour(pair: Pair) -> Neighbour:
    return Neighbour(pair.either, pair.state)


def _by_name(unmatched: Sequence[Pair], judged: Sequence[Pair]) -> list[ByName]:
    of_name: dict[str, list[Pair]] = {}
    for pair in unmatched:
        of_name.setdefault(pair.either.name, []).append(pair)
    matched = Counter(pair.either.name for pair in judged if pair.state == MATCHED)
    found = []
    for name, pairs in of_name.items():
        mismatched = [pair for pair in pairs if pair.state == MISMATCHED]
        counts = Counter(pair.state for pair in pairs)
        counts[MATCHED] = matched[name]
        found.append(ByName(name, pairs[0], max(mismatched, key=_apart, default=None), counts))
    return found
