"""Tool evidence: what this package's own views print of the artifacts, kept verbatim with the command that prints it.

Which views those are follows from what was collected. Comparisons stand first, the rest beside them, and nothing is
left out for what it shows.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.analysis.bundles.criterion import BITWISE, ULP, Criterion
from aorta_collectors.analysis.captures import LAYER_NUMERICS, MEMORY, NUMERICS, TENSORS
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.report.subjects import Subject, pairs_of, with_collector

EVIDENCE = "evidence"
PROGRAM = "aorta-collectors"


@dataclass(frozen=True)
class Printed:
    """What a command of this package has printed, on stdout and stderr together, and its exit code."""

    text: str
    code: int


#: Runs `aorta-collectors` with some words.
Printer = Callable[[Sequence[str]], Printed]


@dataclass(frozen=True)
class View:
    """One command of this package.

    Attributes:
        what: In a few words, for file names and titles.
        words: After `aorta-collectors`.
        subjects: What it is about.
    """

    what: str
    words: tuple[str, ...]
    subjects: tuple[Subject, ...]

    @property
    def command(self) -> str:
        return shlex.join((PROGRAM, *self.words))


@dataclass(frozen=True)
class Evidence:
    """What a view has printed.

    Attributes:
        name: Of its file in evidence/.
    """

    name: str
    view: View
    printed: str
    code: int

    @property
    def text(self) -> str:
        """Content of the file: the command line, what it has printed, and its exit code."""
        return f"$ {self.view.command}\n\n{self.printed}\nexit code: {self.code}\n"


def collect_evidence(
    subjects: Sequence[Subject], criterion: Criterion, printer: Printer, progress: Callable[[float, float], None]
) -> list[Evidence]:
    """Have all views print what they show. What one of them cannot read is what it says."""
    found = []
    views = list(views_of(subjects, criterion))
    for number, view in enumerate(views, 1):
        progress(number - 1, len(views))
        printed = printer(view.words)
        name = f"{number:02d}-{view.what.replace(' ', '-')}.txt"
        found.append(Evidence(name, view, printed.text, printed.code))
    progress(len(views), len(views))
    return found


def views_of(subjects: Sequence[Subject], criterion: Criterion) -> Iterator[View]:
    """The commands, in the order in which a person would want to read what they print."""
    for source, verb in ((TENSORS, "tensors"), (MEMORY, "memory")):
        options = criterion_words(criterion) if source is TENSORS else ()
        for pair in pairs_of(subjects, source):
            yield _of_pair(f"{verb} compare", (verb, "compare", *map(_path, pair), *options), pair)
    for pair in pairs_of(subjects, LAYER_NUMERICS):
        yield _of_pair("compare", ("compare", *map(_path, pair)), pair)
    for subject in with_collector(subjects, LAYER_NUMERICS):
        yield _of_one("first-bad", ("first-bad", _path(subject)), subject)
    for pair in pairs_of(subjects, NUMERICS):
        yield _of_pair("profile", ("profile", _path(pair[1]), "--baseline", _path(pair[0])), pair)
    for subject in with_collector(subjects, NUMERICS):
        yield _of_one("profile", ("profile", _path(subject)), subject)
    for subject in with_collector(subjects, TENSORS):
        if _has_ranks(subject):
            options = ("--ranks", *criterion_words(criterion))
            yield _of_one("tensors ranks", ("tensors", "compare", _path(subject), *options), subject)
    for first, again in repeated(with_collector(subjects, TENSORS)):
        pair = first, again
        yield _of_pair("tensors again", ("tensors", "compare", *map(_path, pair), "--bitwise"), pair)
    shown = _apart_from_pairs(subjects)
    for subject in with_collector(shown, MEMORY):
        yield _of_one("memory show", ("memory", "show", _path(subject)), subject)
    for subject in with_collector(shown, TENSORS):
        yield _of_one("tensors list", ("tensors", "list", _path(subject)), subject)


def repeated(subjects: Sequence[Subject]) -> list[tuple[Subject, Subject]]:
    """The first completed repetition of each variant, beside each later one of the same seed."""
    found = []
    firsts: dict[tuple[str, int | None], Subject] = {}
    for subject in subjects:
        if subject.is_completed:
            first = firsts.setdefault((subject.variant, subject.seed), subject)
            if first is not subject:
                found.append((first, subject))
    return found


def criterion_words(criterion: Criterion) -> tuple[str, ...]:
    """Options of `tensors compare`."""
    words: list[str] = ["--bitwise"] if criterion.kind == BITWISE else []
    if criterion.kind == ULP:
        words += ["--ulp", str(criterion.ulps)]
    for name, value in (("--rtol", criterion.rtol), ("--atol", criterion.atol)):
        words += [] if value is None else [name, repr(value)]
    return (*words, *(["--equal-nan"] if criterion.equal_nan else []))


def _apart_from_pairs(subjects: Sequence[Subject]) -> list[Subject]:
    """Subjects without a partner, of which no comparison shows anything."""
    compared = {id(each) for source in (TENSORS, MEMORY) for pair in pairs_of(subjects, source) for each in pair}
    return [subject for subject in subjects if id(subject) not in compared]


def _has_ranks(subject: Subject) -> bool:
    try:
        trials = subject.captures(TENSORS).captured
    except ArtifactError:
        return False
    return any(len({process.rank for process in trial.processes}) > 1 for trial in trials)


def _of_pair(what: str, words: tuple[str, ...], pair: tuple[Subject, Subject]) -> View:
    labels = " ".join(dict.fromkeys(subject.label for subject in pair))
    return View(f"{what} {labels}", words, pair)


def _of_one(what: str, words: tuple[str, ...], subject: Subject) -> View:
    return View(f"{what} {subject.label}", words, (subject,))


def _path(subject: Subject) -> str:
    """Absolute, so that the command can be run from anywhere."""
    path: Path = subject.path
    return str(path)
