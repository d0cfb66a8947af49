"""What is concluded of values that are not finite: in which repetitions and seeds, and where they begin in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.captures import LAYER_NUMERICS, SOURCES, TENSORS, Trial
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.first_bad import OfTrial, first_bad
from aorta_collectors.errors import CollectorsError
from aorta_collectors.investigate.evidence import Evidence
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, counted, numbers, showing
from aorta_collectors.investigate.report.subjects import Subject
from aorta_collectors.report.first_bad_wording import fault_line
from aorta_collectors.report.wording import text

_NOT_FINITE = ("nan", "inf")
_UNKNOWN = "unknown"
_STAGES = {
    "data": "in the data that goes into {}",
    "parameter": "in a parameter of {}",
    "forward": "in the forward pass of {}",
    "loss": "in {}",
    "backward": "in the backward pass of {}",
    "optimizer": "in the optimizer's update of {}",
}


@dataclass(frozen=True)
class Finite:
    """One run; or one trial of artifacts that were there before.

    Attributes:
        trial: Which trial of the subject it is; empty where it has one.
        is_finite: Of all that was observed; None where nobody looked.
        first: Where the first NaN or Inf is; None where none is known.
    """

    subject: Subject
    trial: str
    is_finite: bool | None
    first: First | None

    def to_json(self) -> dict[str, Any]:
        return {
            "of": self.subject.label,
            "trial": self.trial,
            "finite": self.is_finite,
            "begins": self.first.place if self.first is not None else "",
            "is_origin": self.first is not None and self.first.is_origin,
        }


@dataclass(frozen=True)
class First:
    """The first NaN or Inf.

    Attributes:
        place: In words.
        is_origin: Whether it is known to have come into being there, and not only to have been seen there first.
    """

    place: str
    is_origin: bool = False


#: By trial: the first NaN or Inf, None where a collector has looked and there is none.
_ByTrial = dict[str, "First | None"]


def finite_of(subjects: Sequence[Subject]) -> list[Finite]:
    """Of each subject, whether what was observed was finite; of artifacts that were there before, of each trial."""
    found = []
    for subject in subjects:
        by_layers, by_tensors = _by_layers(subject), _by_tensors(subject)
        trials = list(dict.fromkeys((*by_layers, *by_tensors)))
        firsts = {trial: by_layers.get(trial) or by_tensors.get(trial) for trial in trials}
        if subject.run is not None:
            first = next((each for each in firsts.values() if each is not None), None)
            found.append(Finite(subject, "", subject.run.record["finite"], first))
        elif not trials:
            found.append(Finite(subject, "", None, None))
        for trial, first in firsts.items() if subject.run is None else ():
            found.append(Finite(subject, trial if len(trials) > 1 else "", first is None, first))
    return found


def _by_layers(subject: Subject) -> _ByTrial:
    """As layer_numerics has it. What cannot be read is told by the evidence."""
    if LAYER_NUMERICS.collector not in subject.collectors:
        return {}
    try:
        captures = subject.captures(LAYER_NUMERICS)
        with Database(captures) as database:
            trials = first_bad(captures, database)
    except CollectorsError:
        return {}
    return {of.trial.label: _of_layers(of) for of in trials if of.processes}


def _of_layers(of: OfTrial) -> First | None:
    earliest = of.earliest
    if earliest is None or earliest.fault is None:
        return None
    fault = earliest.fault if earliest.fault["kind"] in _NOT_FINITE else earliest.first_nonfinite
    if fault is None:
        return None
    seen = f"{fault_line(fault)}, rank {earliest.rank}"
    origin = earliest.origin
    if origin is None or origin["stage"] == _UNKNOWN:
        return First(seen)
    reason = text(origin["reason"])
    if (origin["module"], origin["step"]) == (fault["layer"], fault["step"]):
        return First(f"{seen} ({reason})", is_origin=True)
    stage = _STAGES[origin["stage"]].format(text(origin["module"]))
    place = f"step {origin['step']}, {stage}, rank {origin['rank']} ({reason})"
    return First(f"{place}, seen first as {seen}", is_origin=True)


def _by_tensors(subject: Subject) -> _ByTrial:
    """The same as tensors has it, which knows what it has observed, and not where that comes from."""
    if TENSORS.collector not in subject.collectors:
        return {}
    try:
        trials = subject.captures(TENSORS).captured
    except CollectorsError:
        return {}
    return {trial.label: _of_tensors(trial) for trial in trials}


def _of_tensors(trial: Trial) -> First | None:
    firsts = [(process.summary["first_nonfinite"], process.rank) for process in trial.processes]
    known = sorted(((each["step"], each["order"], rank, each) for each, rank in firsts if each), key=lambda it: it[:3])
    if not known:
        return None
    _, _, rank, first = known[0]
    counts = f"{first['nan_count']} NaN, {first['inf_count']} Inf"
    return First(
        f"step {first['step']}, {text(first['name'])}, invocation {first['invocation']}: {counts}, rank {rank}"
    )


def conclude_finite(found: Sequence[Finite], variants: Sequence[str], evidence: Sequence[Evidence]) -> list[Conclusion]:
    """One conclusion for each variant."""
    conclusions = []
    for variant in variants:
        these = [each for each in found if each.subject.variant == variant]
        looked = [each for each in these if each.is_finite is not None]
        bad = [each for each in looked if not each.is_finite]
        if not looked:
            continue
        failed = [each.subject.label for each in looked if not each.subject.is_completed]
        note = f" Counted with these although they failed: {numbers(failed)}." if failed else ""
        if not bad:
            sentence = f"No NaN or Inf in what was observed of the {variant}{_all(looked)}.{note}"
            conclusions.append(_cited(sentence, Standing.OBSERVED, looked, evidence))
            continue
        sentence = f"NaN or Inf in {_which(bad, looked, variant)}. {_where(bad)}{note}"
        depends = len(bad) < len(looked) and all(each.subject.seed is not None for each in looked)
        conclusions.append(_cited(sentence, Standing.OBSERVED, looked, evidence))
        if depends:
            clean = [each for each in looked if each.is_finite]
            told = (
                f"Whether the {variant} is finite goes with the seed: {_seeds(clean)} {_are(clean)}, "
                f"{numbers(each.subject.seed for each in bad)} {_are(bad)} not. Each seed ran once, so that what else "
                "differs from run to run is not ruled out."
            )
            conclusions.append(_cited(told, Standing.CORRELATION, looked, evidence))
    return conclusions


def _all(looked: Sequence[Finite]) -> str:
    if looked[0].subject.run is None:
        return "" if len(looked) == 1 else f", in {len(looked)} of {len(looked)} trials"
    return f", in {len(looked)} of {counted(len(looked), 'repetition')}"


def _which(bad: Sequence[Finite], looked: Sequence[Finite], variant: str) -> str:
    if bad[0].subject.run is None:
        return f"the {variant}" if len(looked) == 1 else f"{len(bad)} of {len(looked)} trials of the {variant}"
    repetitions = [each.subject.repetition for each in bad]
    word = "repetition" if len(repetitions) == 1 else "repetitions"
    of_seeds = f" ({_seeds(bad)})" if all(each.subject.seed is not None for each in bad) else ""
    return f"{word} {numbers(repetitions)}{of_seeds} of {len(looked)} of the {variant}"


def _seeds(of: Sequence[Finite]) -> str:
    return f"{'seed' if len(of) == 1 else 'seeds'} {numbers(each.subject.seed for each in of)}"


def _are(of: Sequence[Finite]) -> str:
    return "is" if len(of) == 1 else "are"


def _where(bad: Sequence[Finite]) -> str:
    """Where it begins, once where all agree; of what is only known to have been seen, no more than that."""
    said = []
    origins = [each for each in bad if each.first is not None and each.first.is_origin]
    seen = [each for each in bad if each.first is not None and not each.first.is_origin]
    if origins:
        said.append(_at("It begins", origins, bad))
    if seen:
        said.append(_at("It was seen first, among what was observed,", seen, bad))
    unknown = [each for each in bad if each.first is None]
    if unknown:
        said.append(f"Where is not known{_of(unknown) if len(unknown) < len(bad) else ''}.")
    return " ".join(said)


def _at(verb: str, these: Sequence[Finite], bad: Sequence[Finite]) -> str:
    places: dict[str, list[Finite]] = {}
    for each in these:
        places.setdefault(each.first.place if each.first is not None else "", []).append(each)
    # Of trials, only their names say which they are: no number of theirs stands before.
    if len(places) == 1 and len(these) == len(bad) and not any(each.trial for each in bad):
        return f"{verb} at {next(iter(places))}."
    told = "; ".join(f"{_of(alike).strip()}: {place}" for place, alike in places.items())
    return f"{verb.rstrip(',')}, {told}."


def _of(these: Sequence[Finite]) -> str:
    if these[0].subject.run is None:
        return f" in {', '.join(text(each.trial) for each in these)}"
    return (
        f" in {'repetition' if len(these) == 1 else 'repetitions'} {numbers(each.subject.repetition for each in these)}"
    )


def _cited(sentence: str, standing: Standing, these: Sequence[Finite], evidence: Sequence[Evidence]) -> Conclusion:
    subjects = [each.subject for each in these]
    shown = [*showing(evidence, subjects, verb=("first-bad",)), *showing(evidence, subjects, verb=("tensors", "list"))]
    files = [path for subject in subjects for source in SOURCES[:1] for path in subject.files_of(source)]
    files += [path for subject in subjects for path in (*subject.files_of(TENSORS), *subject.own_file)]
    return Conclusion(sentence, standing, tuple(shown), tuple(dict.fromkeys(files)))
