"""Whether metadata.json and the records of the runs are those that the journal has, and its lines follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.investigate.files import METADATA, RUN, RUNS, Investigation, Run
from aorta_collectors.investigate.journal import DECLARED, ENDED, JOURNAL, Line, parts_of, read_journal
from aorta_collectors.investigate.verify.fault import Fault

_EDITED = "It was edited since, or its disk is damaged; what rests on it is void, so declare a new investigation"
_PARTS = {
    "declared": "what was declared",
    "started": "what was recorded at the first start",
    "changes": "what --allow-changes recorded",
}


def journal_faults(investigation: Investigation, runs: Sequence[Run]) -> Iterator[Fault]:
    """What the journal does not have as it is.

    Args:
        runs: All attempts that can be read.
    """
    path = investigation.root / JOURNAL
    try:
        lines = read_journal(investigation.root)
    except ArtifactError as error:
        yield Fault(str(path), f"it cannot be read: {error}", _EDITED)
        return
    if not lines:
        yield Fault(str(path), "it is not there, so that nothing holds what the records say", _EDITED)
        return
    yield from _chain(path, lines)
    yield from _of_metadata(investigation, lines)
    yield from _of_runs(investigation.root, runs, lines)


def _chain(path: Path, lines: Sequence[Line]) -> Iterator[Fault]:
    before = None
    for number, line in enumerate(lines, 1):
        if line.previous != before:
            what = f"line {number} does not follow the line before it, of which the digest is another one"
            yield Fault(str(path), what, _EDITED)
        before = line.own


def _of_metadata(investigation: Investigation, lines: Sequence[Line]) -> Iterator[Fault]:
    place = str(investigation.root / METADATA)
    parts = parts_of(investigation.metadata)
    for part, told in _PARTS.items():
        noted = [line.sha256 for line in lines if line.what == part]
        if noted[-1:] != [parts[part]] if part in parts else noted:
            yield Fault(place, f"{told} is not what the journal has", _EDITED)
        elif part == DECLARED and len(noted) > 1:
            yield Fault(place, f"{told} was changed afterwards, as the journal has it", _EDITED)


def _of_runs(root: Path, runs: Sequence[Run], lines: Sequence[Line]) -> Iterator[Fault]:
    noted: dict[str, list[str]] = {}
    for line in lines:
        if line.what == ENDED:
            noted.setdefault(line.of, []).append(line.sha256)
    for run in runs:
        digests = noted.pop(f"{RUNS}/{run.directory.name}/{RUN}", [])
        if run.state == "running":
            continue
        place = str(run.directory / RUN)
        if not digests:
            yield Fault(place, "the journal does not have how this run ended", _EDITED)
            continue
        # One that was killed between its line and its record was closed by the next call: it is interrupted.
        if len(digests) > 1 and run.state != "interrupted":
            yield Fault(place, f"the journal has {len(digests)} ends of this run, which has one", _EDITED)
        with Anchor(root).open(run.directory) as directory:
            found = directory.sha256(RUN)
        if found != digests[-1]:
            yield Fault(place, f"its sha256 is {found}, and was {digests[-1]} when the run had ended", _EDITED)
    for of in noted:
        if not (root / of).is_file():
            yield Fault(str(root / of), "the journal has how this run ended, and it is not there", _EDITED)
