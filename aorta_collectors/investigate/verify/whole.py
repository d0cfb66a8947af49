"""Verifying a whole investigation: each part by itself, so that one fault does not hide another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.evidence import Printer
from aorta_collectors.investigate.existing import differences_from
from aorta_collectors.investigate.files import Investigation, open_investigation
from aorta_collectors.investigate.report.reading import readable_runs
from aorta_collectors.investigate.verify.commands import command_faults
from aorta_collectors.investigate.verify.fault import Fault
from aorta_collectors.investigate.verify.journal import journal_faults
from aorta_collectors.investigate.verify.reported import report_faults, roots_of
from aorta_collectors.investigate.verify.runs import (
    absolute_faults,
    evidence_faults,
    file_faults,
    outcome_faults,
    schedule_faults,
)


@dataclass(frozen=True)
class Verified:
    """
    Attributes:
        runs: Attempts that were looked at.
        note: What is no fault, and should be known; or empty.
    """

    investigation: Investigation
    runs: int
    faults: tuple[Fault, ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.investigation.root),
            "mode": self.investigation.metadata["mode"],
            "runs": self.runs,
            "note": self.note,
            "faults": [fault.to_json() for fault in self.faults],
        }


def verify_investigation(root: Path, printer: Printer, progress: Callable[[float, float], None]) -> Verified:
    """Look at everything.

    Raises:
        ArtifactError: There is no investigation in `root`, or its metadata.json cannot be read.
    """
    investigation = open_investigation(root)
    runs, _ = readable_runs(investigation)
    faults = list(dict.fromkeys(_faults(investigation, printer, progress)))
    return Verified(investigation, len(runs), tuple(faults), roots_of(investigation.root).note)


def _faults(
    investigation: Investigation, printer: Printer, progress: Callable[[float, float], None]
) -> Iterator[Fault]:
    metadata = investigation.metadata
    yield from absolute_faults(investigation.root, metadata)
    runs, unreadable = readable_runs(investigation)
    for why in unreadable:
        place, _, what = why.partition(": ")
        yield Fault(place, what or "it cannot be read", "It was edited, moved or removed; put it back")
    if metadata["mode"] == "fresh":
        yield from schedule_faults(investigation, runs)
        for run in runs:
            yield from file_faults(run)
            yield from outcome_faults(run, metadata)
            yield from evidence_faults(run, metadata)
    yield from journal_faults(investigation, runs)
    yield from command_faults(investigation, runs)
    for entry in metadata["existing"]:
        try:
            changes = differences_from(entry)
        except ArtifactError as error:
            yield Fault(entry["path"], f"it cannot be read: {error}", "Put it back")
            continue
        for name, what in changes.items():
            to_do = "The report is about what was there; put it back, or open a new investigation"
            yield Fault(str(Path(entry["path"]) / name), f"it {what} since the investigation was opened", to_do)
    yield from report_faults(investigation, runs, printer, progress)
