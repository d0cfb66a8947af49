"""How a run went, from what its sweep has left: the trial's record, its receipts and its artifacts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import DirectoryMissing
from aorta_collectors.evidence.receipt import receipt_name, trial_coordinates
from aorta_collectors.evidence.run import receipts_of
from aorta_collectors.evidence.tree import Tree
from aorta_collectors.investigate.files import BUNDLES, SWEEP_LOG
from aorta_collectors.investigate.logs import last_line
from aorta_collectors.investigate.observed import observed_in
from aorta_collectors.linux import signal_name

_EXIT_CODES = ("exit_code", "script_exit_code")
# What the host writes where a command took longer than it may: no command dies of SIGHUP there.
_TIMED_OUT = -1
_ERRORS = ("workload_setup_failed", "infrastructure_failed")


@dataclass(frozen=True)
class Trial:
    """The host's record of the one trial of a run.

    Attributes:
        path: Of the record.
        record: Its content.
    """

    path: Path
    record: Mapping[str, Any]

    @property
    def result(self) -> Mapping[str, Any]:
        found = self.record.get("result")
        return found if isinstance(found, dict) else {}

    @property
    def metrics(self) -> Mapping[str, Any]:
        found = self.result.get("metrics")
        return found if isinstance(found, dict) else {}

    @property
    def verdict(self) -> str:
        """As the host counts it: a command's stands in its metrics, a workload's follows from its status."""
        told = self.metrics.get("verdict")
        if self.record.get("workload") == "_subprocess" and told in ("pass", "fail", "error"):
            return str(told)
        status = self.record.get("exit_status")
        return "pass" if status == "ok" else "error" if status in _ERRORS else "fail"

    @property
    def exit_code(self) -> int | None:
        """The program's, where it is a process of its own that ended by itself."""
        codes = [self.metrics[name] for name in _EXIT_CODES if isinstance(self.metrics.get(name), int)]
        return codes[0] if codes and not self.timed_out else None

    @property
    def timed_out(self) -> bool:
        if any(item.get("type") == "ScriptTimeout" for item in self._failures()):
            return True
        return self.metrics.get("exit_code") == _TIMED_OUT

    @property
    def fault(self) -> str:
        """Why the program did not end well, or ""."""
        if self.timed_out:
            return "it took longer than it may (--timeout), and was ended"
        if self.exit_code is not None and self.exit_code < 0:
            return f"the program was killed by {signal_name(-self.exit_code)}"
        if self.exit_code:
            return f"the program exited with {self.exit_code}"
        if self.exit_code is None and self.verdict != "pass":
            told = (str(item["error"]) for item in self._failures() if item.get("error"))
            return next(told, f"the workload ended as {self.record.get('exit_status')}")
        return ""

    def _failures(self) -> Iterator[Mapping[str, Any]]:
        found = self.result.get("failure_details")
        return (item for item in found if isinstance(item, dict)) if isinstance(found, list) else iter(())


def outcome_of(run: Path, collectors: Sequence[str], points: Sequence[str]) -> dict[str, Any]:
    """The fields of run.json that the files of a run tell, of a sweep that has ended by itself.

    Args:
        run: The run's directory.
        collectors: That were asked for; none in a run without the tool.
        points: That were asked for.
    """
    trial = _trial(run)
    if trial is None:
        reason = f"the sweep ended before the program: {last_line(run / SWEEP_LOG) or 'it left no word'}"
        return {"state": "failed", "reason": reason}
    receipts = _receipts(run, collectors)
    observed = observed_in(run, receipts, trial.metrics)
    missing = observed.missing(points) if collectors else []
    reason = trial.fault
    if reason and not trial.timed_out:
        reason += next((f": {told}" for told in map(_last_step, receipts) if told), "")
    for collector in collectors:
        verdicts = [item for item in receipts if item["collector"] == collector]
        lacking = [item for item in verdicts if item["verdict"] != Verdict.CAPTURED.value]
        if not reason and (lacking or not verdicts):
            why = f"{lacking[0]['verdict']}: {lacking[0]['reason']}" if lacking else "no trial asked for it"
            reason = f"no evidence of {collector}: {why}"
    if not reason and missing:
        reason = observed.told_of(missing)
        reason += f"; {observed.unreadable}" if observed.unreadable else ""
    elapsed = trial.result.get("elapsed_sec", trial.record.get("wall_clock_sec"))
    return {
        "state": "failed" if reason else "completed",
        "reason": reason,
        "exit_code": trial.exit_code,
        "duration_s": elapsed if _is_number(elapsed) and elapsed >= 0 else None,
        "verdict": trial.verdict,
        "metrics": {name: value for name, value in trial.metrics.items() if _is_number(value)},
        "receipts": receipts,
        "points_missing": missing,
        "finite": observed.finite,
    }


def _trial(run: Path) -> Trial | None:
    try:
        for folder in Tree(run / BUNDLES).folders():
            for name in folder.kinds:
                if trial_coordinates(name) is not None:
                    content = strict_json.loads(folder.directory.read(name))
                    return Trial(folder.path / name, content) if isinstance(content, dict) else None
    except (DirectoryMissing, ArtifactError, ValueError):
        return None
    return None


def _receipts(run: Path, collectors: Sequence[str]) -> list[dict[str, Any]]:
    try:
        findings = receipts_of(run / BUNDLES, frozenset(collectors))
    except ArtifactError:
        return []
    return [
        {
            "collector": finding.collector,
            "verdict": finding.verdict.value,
            "reason": finding.reason,
            "path": _receipt_path(finding.trial_file, finding.collector).relative_to(run).as_posix(),
            "artifacts": finding.artifacts.relative_to(run).as_posix(),
        }
        for finding in findings
        if finding.collector in collectors
    ]


def _last_step(receipt: Mapping[str, Any]) -> str:
    """How far a program came that ended by an exception, in the words of its receipt."""
    told = str(receipt["reason"]) if receipt["verdict"] == Verdict.INCOMPLETE.value else ""
    return told.partition(" (the command ")[0] if " ended in step " in told else ""


def _receipt_path(trial_file: Path, collector: str) -> Path:
    return trial_file.parent / receipt_name(trial_coordinates(trial_file.name) or "", collector)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
