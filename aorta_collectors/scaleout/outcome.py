"""What a job left behind: whether its cell ran, and whether the evidence that it was asked for is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.api import Collector, Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.run import Finding, verify_run
from aorta_collectors.scaleout.job import OUTCOME, RESULTS

#: How a cell's job can end. Only "ran" is done; the others are submitted again by the next call.
RAN, LACKING, FAILED, LOST = "ran", "lacking", "failed", "lost"
_MATRIX = "matrix.json"


@dataclass(frozen=True)
class Outcome:
    """How a cell's job ended.

    Attributes:
        state: RAN: the cell ran, and has all evidence that it asked for. LACKING: it ran, and lacks evidence. FAILED:
            the sweep of the cell ended without a valid trial. LOST: the job ended before its sweep did.
        reason: Why it is not RAN, in words.
        run_dir: The host's run directory, if the sweep came as far as to write its matrix.
        row: The cell's row of that matrix.
        findings: One for each request for evidence.
    """

    state: str
    reason: str
    run_dir: Path | None
    row: dict[str, Any] | None
    findings: tuple[Finding, ...]

    @property
    def done(self) -> bool:
        return self.state == RAN


class Judge:
    """Judges the attempts at the cells of a sweep, from the files that they left."""

    def __init__(self, names: frozenset[str], load: Callable[[str], Collector]) -> None:
        """Args: names of all collectors, and what loads one by its name."""
        self._names = names
        self._load = load

    def judge(self, cell: str, requested: Sequence[str], attempt: Path, lost: str, log: Path) -> Outcome:
        """Judge a job that has ended.

        Args:
            requested: Collectors that the cell asks for.
            attempt: The attempt's directory.
            lost: What to say of the job if it left no outcome.
            log: Where the job's output is, for messages.
        """
        code = exit_code(attempt)
        results = attempt / RESULTS
        run_dir, row = _row(results, cell)
        found: list[Finding] = []
        try:
            found = verify_run(results, self._names, self._load) if results.is_dir() else []
            unreadable = ""
        except ArtifactError as error:
            unreadable = str(error)
        state, reason = _state(code, row, found, unreadable, lost)
        # A trial with evidence says nothing of those that a lost job did not come to.
        answered = {finding.collector for finding in found if state != LOST or not finding.satisfied}
        missing = [
            Finding(cell, "-", name, Verdict.MISSING, reason or "no trial asked for it", attempt, attempt)
            for name in requested
            if name not in answered
        ]
        if missing and state == RAN:
            state, reason = LACKING, f"no trial asked for evidence of {', '.join(item.collector for item in missing)}"
        if state != RAN:
            reason = f"{reason}; its log: {log}"
        return Outcome(state, reason, run_dir, row, (*found, *missing))


def _state(
    code: int | None, row: dict[str, Any] | None, found: Sequence[Finding], unreadable: str, lost: str
) -> tuple[str, str]:
    if code is None:
        return LOST, lost
    if code < 0:
        return LOST, f"its sweep was ended by signal {-code}"
    if unreadable:
        return LACKING, unreadable
    if row is None:
        return FAILED, f"its sweep exited with {code} and wrote no matrix"
    if row.get("error") is not None:
        return FAILED, f"the cell ended with an error: {row['error']}"
    lacking = [finding for finding in found if not finding.tolerated]
    if lacking:
        return LACKING, f"{lacking[0].verdict.value}: {lacking[0].reason}"
    if row.get("passed_count") in (None, 0) and row.get("failed_count") in (None, 0):
        return FAILED, "no trial ran its course"
    if code:
        return FAILED, f"its sweep exited with {code}"
    return RAN, ""


def exit_code(attempt: Path) -> int | None:
    """What the attempt's sweep exited with; None while it has not, or if its job never got to say so."""
    content = _read(attempt, OUTCOME)
    code = content.get("exit_code") if content is not None else None
    return code if isinstance(code, int) else None


def _row(results: Path, cell: str) -> tuple[Path | None, dict[str, Any] | None]:
    """The host's run directory and the cell's row of its matrix: <ticket>/, or <ticket>/<workload>/<timestamp>/."""
    for pattern in (f"*/{_MATRIX}", f"*/*/*/{_MATRIX}"):
        for path in sorted(results.glob(pattern)):
            content = _read(path.parent, _MATRIX, results)
            rows = content.get("cells") if content is not None else None
            if not isinstance(rows, list):
                continue
            for row in rows:
                if isinstance(row, dict) and row.get("name") == cell:
                    return path.parent, row
    return None, None


def _read(directory: Path, name: str, anchor: Path | None = None) -> dict[str, Any] | None:
    """A JSON object in a file that the measured program could have written to; None if it is none."""
    try:
        with Anchor(anchor or directory).open(directory) as opened:
            content = json.loads(opened.read(name))
    except (ArtifactError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
