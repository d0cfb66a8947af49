"""What a report is about: each run with the tool that came to something, or each artifact that was there before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import NUMERICS, SOURCES, Captures, Source, Trial
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.api import Verdict
from aorta_collectors.artifacts.process import is_in_order
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.design import BASELINE, CANDIDATE
from aorta_collectors.investigate.files import BUNDLES, RUN, Investigation, Run

_EMPTY = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class Subject:
    """Artifacts of one run.

    Attributes:
        repetition: The same for subjects that are compared with each other.
        label: For people.
        path: Absolute; what the views of this package are given.
        base: The directory below which the paths of `sha256` lie.
        sha256: Digests as they were recorded, by path below `base`.
        collectors: Those that left something here.
        run: None for artifacts that were there before.
    """

    variant: str
    repetition: int
    label: str
    path: Path
    base: Path
    sha256: Mapping[str, str]
    collectors: tuple[str, ...]
    run: Run | None = None

    @property
    def is_completed(self) -> bool:
        return self.run is None or self.run.state == "completed"

    @property
    def ended_early(self) -> bool:
        """Whether its program did not come to its end; one that did may still have failed, for want of evidence."""
        if self.run is not None:
            return self.run.ended_early
        return bool(self.ends)

    @property
    def ends(self) -> dict[str, int]:
        """Of artifacts that were there before: by which exceptions processes ended, each with its last step."""
        found: dict[str, int] = {}
        for source in SOURCES:
            for manifest in self.manifests(source):
                if not is_in_order(str(manifest.get("ended_by") or "exit")):
                    found.setdefault(manifest["ended_by"], manifest["steps_seen"])
        return found

    @property
    def seed(self) -> int | None:
        return None if self.run is None else self.run.record["seed"]

    def captures(self, source: Source) -> Captures:
        """Raises ArtifactError."""
        return captures_below(self.path, source)

    def files_of(self, source: Source) -> list[Path]:
        """Summaries and lines of a collector, which conclusions stand on. A file without a line says nothing."""
        kinds = tuple(f"{kind}_rank" for kind in ("summary", *source.lines))
        folder = f"/{source.collector}/"
        # A directory that was named for a collector alone has no folder of its name in it.
        is_in = any(folder in f"/{name}" for name in self.sha256)
        return [
            self.base / name
            for name, digest in self.sha256.items()
            if digest != _EMPTY and Path(name).name.startswith(kinds) and (folder in f"/{name}" or not is_in)
        ]

    @property
    def runs_compiled(self) -> bool:
        """Whether torch.compile ran code of it, as far as its manifests tell."""
        return any(
            manifest.get("compiled_observed") or manifest.get("graph_breaks")
            for source in SOURCES
            for manifest in self.manifests(source)
        )

    def manifests(self, source: Source) -> list[Mapping[str, Any]]:
        """Of its processes; none where they cannot be read."""
        return [process.summary for trial in self.trials(source) for process in trial.processes]

    def trials(self, source: Source) -> tuple[Trial, ...]:
        """Those with something of a collector; none where they cannot be read."""
        if source.collector not in self.collectors:
            return ()
        try:
            return self.captures(source).captured
        except ArtifactError:
            return ()

    @property
    def own_file(self) -> list[Path]:
        """run.json, for what it says of the run itself."""
        return [] if self.run is None else [self.run.directory / RUN]


def subjects_of(investigation: Investigation, runs: Sequence[Run]) -> list[Subject]:
    """Of runs that count and have evidence, in the schedule's order; or of the artifacts that were there before.

    Args:
        runs: The last attempt at each.
    """
    metadata = investigation.metadata
    if metadata["mode"] != "fresh":
        return [_existing(entry) for entry in metadata["existing"]]
    return [_of_run(run) for run in runs if run.counts and run.record["tool"] and _captured(run)]


def pairs_of(subjects: Sequence[Subject], source: Source) -> list[tuple[Subject, Subject]]:
    """Baseline and candidate of each repetition in which both have left something of a collector.

    Of a run that failed, what it left until then is compared: where tensors part first, it may be why it did. How long
    it took says nothing.
    """
    found: dict[int, dict[str, Subject]] = {}
    for subject in subjects:
        if source.collector in subject.collectors and (subject.is_completed or source is not NUMERICS):
            found.setdefault(subject.repetition, {})[subject.variant] = subject
    return [(both[BASELINE], both[CANDIDATE]) for _, both in sorted(found.items()) if len(both) > 1]


def with_collector(subjects: Sequence[Subject], source: Source) -> list[Subject]:
    return [subject for subject in subjects if source.collector in subject.collectors]


def _of_run(run: Run) -> Subject:
    return Subject(
        run.record["variant"],
        run.record["repetition"],
        run.directory.name,
        run.directory / BUNDLES,
        run.directory,
        run.record["sha256"],
        tuple(_captured(run)),
        run,
    )


def _captured(run: Run) -> list[str]:
    """The collectors whose evidence holds; of a run that failed, what it left before its end too."""
    wanted = (
        [Verdict.CAPTURED.value] if run.state == "completed" else [Verdict.CAPTURED.value, Verdict.INCOMPLETE.value]
    )
    return [item["collector"] for item in run.record["receipts"] if item["verdict"] in wanted]


def _existing(entry: Mapping[str, Any]) -> Subject:
    path = Path(entry["path"])
    return Subject(entry["variant"], 1, entry["variant"], path, path, entry["sha256"], collectors_in(path))


def collectors_in(path: Path) -> tuple[str, ...]:
    """Those that left something below a path."""
    found = []
    for source in SOURCES:
        try:
            if captures_below(path, source).captured:
                found.append(source.collector)
        except ArtifactError:
            continue
    return tuple(found)


def unreadable_in(path: Path) -> str:
    """Why what lies below a path cannot be read; empty where no collector's files lie there."""
    for source in SOURCES:
        if any(next(path.rglob(f"{kind}_rank*.jsonl"), None) is not None for kind in source.lines):
            try:
                problems = captures_below(path, source).problems
            except ArtifactError as error:
                return str(error)
            if problems:
                return problems[0]
    return ""
