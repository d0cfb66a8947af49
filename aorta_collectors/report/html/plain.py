"""What a report shows, as JSON has it: for `--json`."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.magnitude import KINDS
from aorta_collectors.analysis.report import Detail, Report
from aorta_collectors.analysis.report.charts import Heat, Line
from aorta_collectors.analysis.report.verdicts import Row
from aorta_collectors.report.html import sentences


def plain(report: Report) -> dict[str, Any]:
    """Headline, answers, trials and details."""
    found = {
        "name": report.name,
        "workload": report.workload,
        "headline": sentences.headline(report),
        "starts": list(sentences.starts(report)),
        "led": list(sentences.led(report)),
        "differ": list(sentences.differ(report)),
        "trials": [_row(row) for row in report.rows],
        "details": [_detail(detail) for detail in report.details],
        "cells": [_line(line) for line in report.cells_line],
        "numerics": [found.as_json() for found in report.profiled],
        "sweep_again": report.sweep_again,
        "problems": report.captures.problems,
    }
    return {name: _json(value) for name, value in found.items()}


def _row(row: Row) -> dict[str, Any]:
    trial, process = row.of.trial, row.of.earliest
    return {
        "run": trial.run,
        "cell": trial.cell,
        "trial": trial.trial,
        "host": row.host,
        "host_reason": row.host_reason,
        "evidence": row.evidence,
        "satisfied": row.satisfied,
        "reason": row.reason,
        "first_bad": row.fault,
        "rank": process.rank if process is not None else None,
        "origin": process.origin if process is not None else None,
        "outcome": row.cell.outcome,
        "steps_later": row.cell.steps_later,
    }


def _detail(detail: Detail) -> dict[str, Any]:
    trial = detail.row.of.trial
    return {
        "run": trial.run,
        "cell": trial.cell,
        "trial": trial.trial,
        "focus": asdict(detail.focus) if detail.focus is not None else None,
        "huge_threshold": detail.huge,
        "run_up": [_line(line) for line in detail.run_up],
        "heat": _heat(detail.heat) if detail.heat is not None else None,
        "ranks": [asdict(rank) for rank in detail.ranks],
        "by_rank": [_line(line) for line in detail.by_rank],
        "facts": asdict(detail.facts),
    }


def _line(line: Line) -> dict[str, Any]:
    return {"label": line.label, "series": asdict(line.series), "points": [asdict(point) for point in line.points]}


def _heat(heat: Heat) -> dict[str, Any]:
    keys = ("row", "column", "kind", "nan", "inf", "huge", "numel", "rank")
    return {
        "rows": [{"first": asdict(first), "last": asdict(last), "tensors": count} for first, last, count in heat.rows],
        "columns": [{"first_step": first, "last_step": last} for first, last in heat.columns],
        "magnitudes": heat.magnitudes,
        "bad": [dict(zip(keys, (*cell[:2], KINDS[cell[2]], *cell[3:]), strict=True)) for cell in heat.bad],
        "ranks": heat.ranks,
    }


def _json(value: Any) -> Any:
    """Numbers that JSON has not are null; paths and names are text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
