"""The matrix of evidence: every cell of a submission, how its job ended and what evidence it has, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.scaleout.engine import log_of
from aorta_collectors.scaleout.ledger import Entry, Submission
from aorta_collectors.scaleout.outcome import Outcome

#: Name of the file in the output directory.
MATRIX = "evidence_matrix.json"
_COUNTS = ("trials", "passed_count", "failed_count", "error_count")


def write_matrix(output: Path, submission: Submission, cells: list[str], outcomes: Mapping[str, Outcome]) -> None:
    """Replace the matrix atomically. Raises ArtifactError.

    Args:
        cells: All cells of the recipe, in its order.
        outcomes: Of those whose jobs have ended.
    """
    content = {
        "schema_version": 1,
        "digest": submission.request.digest,
        "recipe": submission.request.recipe,
        "cells": [_cell(cell, submission.cells.get(cell), outcomes.get(cell)) for cell in cells],
    }
    with Anchor(output).open(output) as directory:
        directory.write(MATRIX, json.dumps(content, indent=2).encode())


def _cell(cell: str, entry: Entry | None, outcome: Outcome | None) -> dict[str, Any]:
    row = (outcome.row if outcome is not None else None) or {}
    return {
        "cell": cell,
        "state": outcome.state if outcome is not None else "waiting" if entry is None else entry.state,
        "reason": outcome.reason if outcome is not None else "",
        "executor": entry.executor if entry is not None else None,
        "job": entry.job if entry is not None else None,
        "attempt": entry.attempt if entry is not None else 0,
        "log": str(log_of(entry)) if entry is not None else None,
        "run_dir": str(outcome.run_dir) if outcome is not None and outcome.run_dir is not None else None,
        **{name: row.get(name) for name in _COUNTS},
        "evidence": [finding.to_json() for finding in outcome.findings] if outcome is not None else [],
    }
