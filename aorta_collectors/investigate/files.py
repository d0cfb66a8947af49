"""The files of an investigation that hold its state: metadata.json, and run.json of each run, read and written whole.

    <root>/metadata.json                    what is asked, and how it is to be answered
    <root>/journal.jsonl                    the digests of these files, in a chain
    <root>/runs/003-candidate-2/run.json    how one run went
    <root>/runs/003-candidate-2/command.txt, stdout.log, stderr.log, sweep.log, recipe.yaml, bundles/

Each is checked against its schema at every reading and writing, and replaced atomically: whoever reads while runs are
made, and whoever comes after one that was killed, finds the state before or after, and never half of one. The measured
programs could write here, so nothing is read through a link.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, DirectoryMissing, Kind
from aorta_collectors.investigate.journal import ENDED, note, parts_of
from aorta_collectors.schema_check import first_error

SCHEMA_VERSION = 1
METADATA, RUNS = "metadata.json", "runs"
#: In the directory of a run.
RUN, COMMAND, STDOUT, STDERR, SWEEP_LOG = "run.json", "command.txt", "stdout.log", "stderr.log", "sweep.log"
RECIPE, BUNDLES = "recipe.yaml", "bundles"

_ATTEMPT = re.compile(r"(?P<name>.+)-attempt(?P<attempt>[2-9]|[1-9]\d+)$")


@dataclass(frozen=True)
class Run:
    """One attempt at one run of the schedule.

    Attributes:
        directory: Below runs/.
        record: Content of its run.json, as in schemas/investigation.run.json.
    """

    directory: Path
    record: Mapping[str, Any]

    @property
    def number(self) -> int:
        return int(self.record["number"])

    @property
    def attempt(self) -> int:
        return int(self.record["attempt"])

    @property
    def state(self) -> str:
        return str(self.record["state"])

    @property
    def ended_early(self) -> bool:
        """Whether its program did not come to a good end: one that failed for want of evidence alone did."""
        code = self.record["exit_code"]
        # The verdict is that of the sweep, which fails a trial for want of evidence too.
        is_bad = self.record["verdict"] != "pass" if code is None else code != 0
        return self.state != "completed" and is_bad

    @property
    def counts(self) -> bool:
        """Whether it ran its course after the warm-up: what a report compares."""
        return self.state in ("completed", "failed") and not self.record["warm_up"]


@dataclass(frozen=True)
class Investigation:
    """An investigation as it lies on disk.

    Attributes:
        root: Its directory, absolute.
        metadata: Content of metadata.json, as in schemas/investigation.metadata.json.
    """

    root: Path
    metadata: Mapping[str, Any]

    def run_directories(self) -> list[Path]:
        """All directories below runs/, in the order of their names; the attempts of a run in theirs.

        Raises:
            ArtifactError: runs/ cannot be read.
        """
        runs = self.root / RUNS
        try:
            with Anchor(self.root).open(runs) as directory:
                found = [name for name, kind in directory.entries() if kind is Kind.DIRECTORY]
        except DirectoryMissing:
            return []
        # One that is being made has a dot in front.
        return [runs / name for name in sorted(found, key=_by_attempt) if not name.startswith(".")]

    def read_run(self, directory: Path) -> Run:
        """One run of `run_directories`. Raises ArtifactError if its run.json is missing, unreadable or no run's."""
        record = _read(self.root, directory, RUN, "investigation.run")
        expected = directory_name(record["name"], record["attempt"])
        if directory.name != expected:
            raise ArtifactError(f"{directory / RUN}: is of the run {expected}; it was copied or moved here")
        return Run(directory, record)

    def runs(self) -> list[Run]:
        """Every attempt at every run that was begun, in the order of the schedule.

        Raises:
            ArtifactError: One cannot be read. `run_directories` and `read_run` tell them apart.
        """
        found = [self.read_run(directory) for directory in self.run_directories()]
        return sorted(found, key=lambda run: (run.number, run.attempt))

    def latest(self) -> list[Run]:
        """The last attempt at each run that was begun. Raises ArtifactError."""
        return list({run.number: run for run in self.runs()}.values())


def open_investigation(root: Path) -> Investigation:
    """The investigation in `root`. Raises ArtifactError if there is none, or it cannot be read."""
    root = root.resolve()
    if not (root / METADATA).is_file():
        raise ArtifactError(f"{root} has no {METADATA}: it is no investigation. `investigate new` makes one")
    return Investigation(root, _read(root, root, METADATA, "investigation.metadata"))


def write_metadata(root: Path, metadata: Mapping[str, Any]) -> None:
    """Replace metadata.json, and note it. Raises ArtifactError if it does not fit the schema, or cannot be written."""
    content = _checked(root / METADATA, "investigation.metadata", metadata)
    for what, digest in parts_of(metadata).items():
        note(root, what, METADATA, digest)
    _write(root, root, METADATA, content)


def write_run(root: Path, directory: Path, record: Mapping[str, Any]) -> None:
    """Replace run.json of a run, and note one that has ended.

    Raises:
        ArtifactError: It does not fit the schema, or cannot be written.
    """
    content = _checked(directory / RUN, "investigation.run", record)
    if record["state"] != "running":
        of = (directory / RUN).relative_to(root).as_posix()
        note(root, ENDED, of, hashlib.sha256(content).hexdigest())
    _write(root, directory, RUN, content)


def directory_name(name: str, attempt: int) -> str:
    """Of an attempt at the run `name`, below runs/."""
    return name if attempt == 1 else f"{name}-attempt{attempt}"


def utc_now() -> str:
    """Such as 2026-11-29T10:15:00.123456+00:00."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


def _by_attempt(name: str) -> tuple[str, int]:
    found = _ATTEMPT.fullmatch(name)
    return (found["name"], int(found["attempt"])) if found else (name, 1)


def _read(root: Path, directory: Path, name: str, schema: str) -> dict[str, Any]:
    path = directory / name
    with Anchor(root).open(directory) as opened:
        try:
            content: dict[str, Any] = strict_json.loads(opened.read(name))
        except ValueError as error:
            raise ArtifactError(f"{path}: not JSON ({error})") from None
    _check(path, schema, content)
    return content


def _checked(path: Path, schema: str, content: Mapping[str, Any]) -> bytes:
    _check(path, schema, content)
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def _write(root: Path, directory: Path, name: str, content: bytes) -> None:
    with Anchor(root).open(directory) as opened:
        opened.write(name, content)


def _check(path: Path, schema: str, content: Any) -> None:
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version is not None and version != SCHEMA_VERSION:
        raise ArtifactError(f"{path}: schema_version {version}; this package reads version {SCHEMA_VERSION}")
    fault = first_error(schema, content)
    if fault is not None:
        where, message = fault
        raise ArtifactError(f"{path}: {f'{where}: ' if where else ''}{message}")
