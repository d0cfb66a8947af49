"""Verifying a whole run directory after the fact: every trial that asked for evidence, against its receipt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta_collectors.api import Collector, Expected, Verdict
from aorta_collectors.errors import ArtifactError, CollectorsError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.ledger import LEDGER, Requested, read_ledger
from aorta_collectors.evidence.receipt import Receipt, read_receipt, receipt_name, trial_coordinates
from aorta_collectors.evidence.trial import check_artifacts


@dataclass(frozen=True)
class Finding:
    """One request for evidence and what became of it.

    Attributes:
        trial_file: The host's record of the trial.
        receipt: As found; None where the trial ran without the plugin.
    """

    cell: str
    trial: str
    collector: str
    verdict: Verdict
    reason: str
    trial_file: Path
    artifacts: Path
    receipt: Receipt | None = None

    @property
    def satisfied(self) -> bool:
        return self.verdict.satisfied

    @property
    def tolerated(self) -> bool:
        """Satisfied, or not required by the recipe (on_missing: warn)."""
        return self.satisfied or (self.receipt is not None and self.receipt.on_missing == "warn")

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "trial": self.trial,
            "collector": self.collector,
            "verdict": self.verdict.value,
            "satisfied": self.satisfied,
            "reason": self.reason,
            "artifacts": str(self.artifacts),
            "metrics": dict(self.receipt.metrics) if self.receipt is not None else {},
        }


def requests_in(run_dir: Path, names: frozenset[str]) -> Iterator[tuple[Path, str, str]]:
    """(trial file, trial id, collector) for each request for one of `names` below `run_dir`, in a stable order.

    A trial's record says what it asked for, unless the workload changed its configuration; a receipt beside it says so
    too. Files that are named like the host's records but are none are passed over: the ledger of a sweep misses them.

    Raises:
        ArtifactError: `run_dir` is no directory.
    """
    if not run_dir.is_dir():
        raise ArtifactError(f"{run_dir} is not a directory")
    for path in _files_below(run_dir, lambda name: trial_coordinates(name) is not None):
        coordinates = trial_coordinates(path.name) or ""
        try:
            content = json.loads(path.read_bytes())
            asked = content["config"].get("_aorta_collect") or []
            trial = str(content["trial_id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        for collector in sorted(names):
            if collector in asked or (path.parent / receipt_name(coordinates, collector)).is_file():
                yield path, trial, collector


def _files_below(run_dir: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(run_dir):
        subfolders.sort()
        yield from (Path(folder) / name for name in sorted(files) if wanted(name))


def receipts_of(run_dir: Path, names: frozenset[str]) -> list[Finding]:
    """What the receipts say, without looking at the artifacts again."""
    return [_from_receipt(run_dir, *request) for request in requests_in(run_dir, names)]


def verify_run(run_dir: Path, names: frozenset[str], load: Callable[[str], Collector]) -> list[Finding]:
    """Read every receipt and check again what it vouches for; what a sweep asked for and is not there is missing."""
    findings = [_again(run_dir, finding, load) for finding in receipts_of(run_dir, names)]
    for path in _files_below(run_dir, lambda name: name == LEDGER):
        findings += _lost(path.parent, read_ledger(path), findings)
    return findings


def _lost(sweep_dir: Path, entries: Sequence[Requested], findings: Sequence[Finding]) -> list[Finding]:
    """What the ledger of the sweep in `sweep_dir` lists and none of `findings` answers."""
    present = {
        (finding.cell, finding.trial, finding.collector)
        for finding in findings
        if finding.trial_file.is_relative_to(sweep_dir)
    }
    return [
        Finding(entry.cell, entry.trial, entry.collector, Verdict.MISSING, entry.reason, sweep_dir, sweep_dir)
        for entry in entries
        if (entry.cell, entry.trial, entry.collector) not in present
    ]


def _from_receipt(run_dir: Path, trial_file: Path, trial: str, collector: str) -> Finding:
    coordinates = trial_coordinates(trial_file.name) or ""
    artifacts = trial_file.with_suffix("")
    cell = _cell(run_dir, trial_file)

    def finding(verdict: Verdict, reason: str, receipt: Receipt | None = None) -> Finding:
        where = trial_file.parent / receipt.artifacts if receipt is not None else artifacts
        return Finding(cell, trial, collector, verdict, reason, trial_file, where, receipt)

    try:
        with Anchor(run_dir).open(trial_file.parent) as directory:
            receipt = read_receipt(directory, receipt_name(coordinates, collector))
    except ArtifactError as error:
        return finding(Verdict.INVALID, f"unreadable receipt: {error}")
    if receipt is None:
        reason = "no receipt: the trial ran without aorta-collectors, or ended before it could be verified"
        return finding(Verdict.MISSING, reason)
    if receipt.trial != trial or receipt.collector != collector:
        return finding(Verdict.STALE, f"the receipt is for {receipt.collector} of trial {receipt.trial}")
    return finding(Verdict(receipt.verdict), receipt.reason, receipt)


def _again(run_dir: Path, finding: Finding, load: Callable[[str], Collector]) -> Finding:
    receipt = finding.receipt
    if receipt is None or finding.verdict is not Verdict.CAPTURED:
        return finding
    try:
        collector = load(finding.collector)
        expected = Expected(collector.recall(dict(receipt.options)), frozenset(receipt.run_ids), receipt.route)
    except CollectorsError as error:
        return replace(finding, verdict=Verdict.INVALID, reason=str(error))
    checked = check_artifacts(collector, Anchor(run_dir), finding.artifacts, expected)
    verification = checked.verification
    if verification.verdict is Verdict.CAPTURED:
        changed = [name for name, digest in receipt.sha256.items() if checked.sha256.get(name) != digest]
        if not changed:
            return finding
        reason = f"{changed[0]} is not the file that was verified when the trial ended; it has been changed since"
        return replace(finding, verdict=Verdict.INVALID, reason=reason)
    reason = f"captured when the trial ended, but since then: {verification.reason}"
    return replace(finding, verdict=verification.verdict, reason=reason)


def _cell(run_dir: Path, trial_file: Path) -> str:
    """The cell's directory name: <cell>/<workload>/trial_*.json, below cells/ or not; "-" in a plain run."""
    parts = trial_file.relative_to(run_dir).parts[:-2]
    return parts[-1] if parts else "-"
