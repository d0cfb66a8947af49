"""Verifying a whole run directory after the fact: every trial that asked for evidence, against its receipt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta_collectors.api import Collector, Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.again import Progress, check_all
from aorta_collectors.evidence.asked_for import AskedFor
from aorta_collectors.evidence.finding import Finding
from aorta_collectors.evidence.ledger import LEDGER, Requested, read_ledger
from aorta_collectors.evidence.receipt import Receipt, read_receipt, receipt_name, trial_coordinates
from aorta_collectors.evidence.tree import Folder, Tree
from aorta_collectors.strict_json import check_extent

__all__ = ["Finding", "receipts_of", "verify_run"]


def receipts_of(run_dir: Path, names: frozenset[str]) -> list[Finding]:
    """What the receipts below `run_dir` say of requests for one of `names`, in a stable order.

    The artifacts are not looked at again.

    Raises:
        ArtifactError: `run_dir` cannot be read.
    """
    return _Run(run_dir, names).findings


def verify_run(
    run_dir: Path,
    names: frozenset[str],
    load: Callable[[str], Collector],
    progress: Progress = lambda done, total: None,
    on_link: Callable[[Path], object] = lambda path: None,
    *,
    in_processes: bool = False,
) -> list[Finding]:
    """Read every receipt and check again what it vouches for; what a sweep asked for and is not there is missing.

    Args:
        load: Finds a collector.
        progress: Told how many of how many receipts have been checked.
        on_link: Told of each symbolic link that was passed over, up to a thousand.
        in_processes: Whether other processes may share the work where it is much. They import the script that this one
            runs, and `load`: for a command of ours, and not for a library in somebody's script.

    Raises:
        ArtifactError: `run_dir` cannot be read.
    """
    run = _Run(run_dir, names)
    findings = check_all(run_dir, run.findings, load, progress, in_processes=in_processes)
    for sweep_dir, entries in run.ledgers.items():
        findings += _lost(sweep_dir, entries, findings, run.tree)
    for path in run.tree.links:
        on_link(path)
    return findings


class _Run:
    """One look at a run directory.

    A trial's record says what it asked for, unless the workload changed its configuration; a receipt beside it says so
    too. A file that is named like a record but is none counts where a receipt lies beside it; otherwise the ledger of a
    sweep misses it.

    Attributes:
        ledgers: Of each sweep, by its directory.
    """

    def __init__(self, run_dir: Path, names: frozenset[str]) -> None:
        self.tree = Tree(run_dir)
        self.findings: list[Finding] = []
        self.ledgers: dict[Path, list[Requested]] = {}
        broken: list[Finding] = []
        for folder in self.tree.folders():
            for name in folder.kinds:
                if trial_coordinates(name) is not None:
                    self.findings += self._trial(folder, name, names)
                elif name == LEDGER:
                    try:
                        self.ledgers[folder.path] = read_ledger(folder.directory)
                    except ArtifactError as error:
                        broken.append(_broken(folder.path, f"what this sweep asked for is not known: {error}"))
        broken += [_broken(path, f"{path} cannot be looked at: {why}") for path, why in self.tree.unreadable.items()]
        self.findings += broken

    def _trial(self, folder: Folder, name: str, names: frozenset[str]) -> Iterator[Finding]:
        trial_file = folder.path / name
        cell = _cell(self.tree.run_dir, trial_file)
        try:
            trial, config = _trial_record(folder, name)
        except ArtifactError as error:
            trial, config, unreadable = None, {}, f"the record of this trial cannot be read: {error}"
        asked = config.get("_aorta_collect") or ()
        for collector in sorted(names):
            if collector not in asked and receipt_name(trial_coordinates(name) or "", collector) not in folder.kinds:
                continue
            found = _from_receipt(folder, cell, trial_file, trial, collector)
            if trial is None:
                found = replace(found, verdict=Verdict.INVALID, reason=unreadable)
            elif found.satisfied and found.receipt is not None:
                why = AskedFor.by_record(config, collector).contradiction(found.receipt)
                if why:
                    reason = f"by its record, this trial has {why}; it was edited, or is another trial's"
                    found = replace(found, verdict=Verdict.INVALID, reason=reason, receipt=None)
            yield found


def _broken(path: Path, reason: str) -> Finding:
    return Finding("-", "-", "-", Verdict.INVALID, reason, path, path)


def _trial_record(folder: Folder, name: str) -> tuple[str, Mapping[str, Any]]:
    """The trial's id and its configuration. Raises ArtifactError."""
    content = folder.directory.read(name)
    try:
        check_extent(content)
        record = json.loads(content)
        trial, config = record["trial_id"], record["config"]
        if not isinstance(config, dict) or not isinstance(config.get("_aorta_collect") or [], list):
            raise TypeError("its config is none")
        return str(trial), config
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{name} is no record of a trial ({type(error).__name__}: {error})") from None


def _from_receipt(folder: Folder, cell: str, trial_file: Path, trial: str | None, collector: str) -> Finding:
    """The finding for a trial; without its id, for the trial that the receipt says it is for."""
    coordinates = trial_coordinates(trial_file.name) or ""
    name = receipt_name(coordinates, collector)

    def finding(verdict: Verdict, reason: str, receipt: Receipt | None = None) -> Finding:
        where = trial_file.with_suffix("") if receipt is None else trial_file.parent / receipt.artifacts
        known = trial or (coordinates if receipt is None else receipt.trial)
        return Finding(cell, known, collector, verdict, reason, trial_file, where, receipt)

    if name not in folder.kinds:
        reason = "no receipt: the trial ran without aorta-collectors, or ended before it could be verified"
        return finding(Verdict.MISSING, reason)
    try:
        refusal = folder.refusal(name)
        receipt = read_receipt(folder.directory, name) if refusal is None else None
    except ArtifactError as error:
        refusal = str(error)
    if refusal is not None or receipt is None:
        return finding(Verdict.INVALID, f"unreadable receipt: {refusal or 'it is gone'}")
    if receipt.trial != (trial or receipt.trial) or receipt.collector != collector:
        return finding(Verdict.STALE, f"the receipt is for {receipt.collector} of trial {receipt.trial}")
    return finding(Verdict(receipt.verdict), receipt.reason, receipt)


def _lost(sweep_dir: Path, entries: Sequence[Requested], findings: Sequence[Finding], tree: Tree) -> list[Finding]:
    """What the ledger of the sweep in `sweep_dir` lists and none of `findings` answers."""
    present = {
        (_cell(sweep_dir, finding.trial_file), finding.trial, finding.collector)
        for finding in findings
        if finding.trial_file.is_relative_to(sweep_dir)
    }
    links = [path.relative_to(sweep_dir) for path in tree.links if path.is_relative_to(sweep_dir)]
    lost = []
    for entry in entries:
        if (entry.cell, entry.trial, entry.collector) in present:
            continue
        reason = entry.reason
        if link := next((link for link in links if entry.cell in link.parts), None):
            reason += f"; {link} is a symbolic link, which is not followed"
        lost.append(Finding(entry.cell, entry.trial, entry.collector, Verdict.MISSING, reason, sweep_dir, sweep_dir))
    return lost


def _cell(run_dir: Path, trial_file: Path) -> str:
    """The cell's directory name: <cell>/<workload>/trial_*.json, below cells/ or not; "-" in a plain run."""
    parts = trial_file.relative_to(run_dir).parts[:-2]
    return parts[-1] if parts else "-"
