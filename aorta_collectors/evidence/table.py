"""Findings as a table for people: the terminal view shared by a sweep's end and `aorta-collectors verify`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from aorta_collectors.evidence.run import Finding

_UNBOUNDED = 10_000


def render(findings: Sequence[Finding], out: TextIO) -> None:
    """Write a table, then where the artifacts are and what is wrong, a line each. Nothing at all without findings.

    Lines stay whole, however wide they are: a path that is wrapped can be neither copied nor grepped.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not findings:
        return
    console = Console(file=out, highlight=False, width=_UNBOUNDED)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("cell", "trial", "collector", "verdict", "first bad"):
        table.add_column(heading, no_wrap=True)
    for finding in findings:
        color = "green" if finding.satisfied else "red"
        table.add_row(
            Text(finding.cell),
            Text(_trial_index(finding)),
            Text(finding.collector),
            Text(finding.verdict.value, style=color),
            Text(first_bad(finding)),
        )
    console.print(Text("Evidence", style="bold"))
    console.print(table)
    for finding in findings:
        place = f"{finding.cell}, trial {_trial_index(finding)}"
        if finding.receipt is not None and finding.receipt.files:
            console.print(Text(f"{place}: {_shown(finding.artifacts)}"))
        if not finding.satisfied:
            console.print(Text(f"{place}: {finding.verdict.value}: {finding.reason} [{_shown(finding.trial_file)}]"))


def first_bad(finding: Finding) -> str:
    """Such as "step 18 bwd over_arch.model.1 huge, inf from step 41"; "none" without a bad record; "-" unknown.

    Of a followed tensor, where in its batch's life that was; and the origin, where one is known.
    """
    metrics: Mapping[str, Any] = finding.receipt.metrics if finding.receipt is not None else {}
    prefix = f"{finding.collector}_first_bad"
    step = metrics.get(f"{prefix}_step")
    stage = metrics.get(f"{finding.collector}_origin_stage")
    if step is None and stage is None:
        return "none" if metrics else "-"
    parts = []
    if step is not None:
        words = [metrics.get(f"{prefix}_{key}") for key in ("direction", "layer", "kind")]
        parts.append(" ".join([f"step {step}", *(str(word) for word in words if word is not None)]))
        lost = metrics.get(f"{finding.collector}_first_nonfinite_step")
        if lost is not None and words[-1] == "huge":
            parts.append(f"{metrics.get(f'{finding.collector}_first_nonfinite_kind')} from step {lost}")
    for key, text in (("phase", "at {}"), ("checkpoint", "after {}"), ("batch_id", "batch {}")):
        if f"{prefix}_{key}" in metrics:
            parts.append(text.format(metrics[f"{prefix}_{key}"]))
    if stage not in (None, "unknown"):
        place = (metrics.get(f"{finding.collector}_origin_{key}") for key in ("module", "step"))
        parts.append("origin {} {} in step {}".format(stage, *place))
    return ", ".join(parts)


def _trial_index(finding: Finding) -> str:
    """The N of trial id <workload>_d0_m0_tN."""
    return finding.trial.rpartition("_t")[2] or "-"


def _shown(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)
