"""Where it first goes bad, for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aorta_collectors.analysis.first_bad import OfProcess, OfTrial
from aorta_collectors.analysis.mitigations import OfCell


def document(cells: Sequence[OfCell]) -> dict[str, Any]:
    """One JSON document.

    `bad`: whether anything counts as bad. `cells`: each with `run`, `cell`, `mitigations`, its `outcome` against the
    baseline (null where nothing is compared), `steps_later`, `why`, and its `trials`. A trial has `verdict`, `reason`,
    `passed`, `running`, `steps`, `earliest` (which of its processes), and `processes`. A process has `fault` (what
    counts as its first bad value), `first_bad` and `first_nonfinite` as they were logged, `by_design`, `origin`, and
    `run_up`: `steps`, `magnitudes`, `per_step`, `limit`, `limit_of`.
    """
    return {
        "bad": any(cell.bad for cell in cells),
        "cells": [
            {
                "run": cell.run,
                "cell": cell.cell,
                "mitigations": list(cell.mitigations),
                "outcome": cell.outcome.value if cell.outcome is not None else None,
                "steps_later": cell.steps_later,
                "why": cell.why,
                "trials": [_trial(trial) for trial in cell.trials],
            }
            for cell in cells
        ],
    }


def _trial(trial: OfTrial) -> dict[str, Any]:
    receipt, earliest = trial.trial.receipt, trial.earliest
    return {
        "trial": trial.trial.trial,
        "verdict": trial.verdict,
        "reason": receipt.reason if receipt is not None else None,
        "passed": trial.passed,
        "running": trial.running,
        "steps": trial.steps,
        "earliest": earliest.process if earliest is not None else None,
        "processes": [_process(process) for process in trial.processes],
    }


def _process(process: OfProcess) -> dict[str, Any]:
    run_up = process.run_up
    return {
        "process": process.process,
        "rank": process.rank,
        "restart": process.restart,
        "steps": process.steps,
        "running": process.running,
        "fault": process.fault,
        "first_bad": process.first,
        "first_nonfinite": process.first_nonfinite,
        "by_design": process.by_design or None,
        "origin": process.origin,
        "run_up": {**asdict(run_up), "per_step": run_up.per_step} if run_up is not None else None,
    }
