"""Findings as a table for people: the terminal view shared by a sweep's end and `aorta-collectors verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from aorta_collectors.evidence.run import Finding


def render(findings: Sequence[Finding], out: TextIO) -> None:
    """Write a table, then a line for each finding that is not satisfied. Nothing at all without findings."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not findings:
        return
    # A pipe has no width: rows stay whole for grep, instead of being wrapped at 80 columns.
    console = Console(file=out, highlight=False, soft_wrap=True, width=None if out.isatty() else 10_000)
    table = Table(title="Evidence", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("cell", "trial", "collector", "verdict", "first bad", "artifacts"):
        table.add_column(heading, no_wrap=True, overflow="ignore")
    for finding in findings:
        style = "green" if finding.satisfied else "red"
        table.add_row(
            Text(finding.cell),
            Text(finding.trial),
            Text(finding.collector),
            Text(finding.verdict.value, style=style),
            Text(first_bad(finding)),
            Text(str(finding.artifacts)),
        )
    console.print(table)
    for finding in findings:
        if not finding.satisfied:
            console.print(Text(f"{finding.cell} {finding.trial}: {finding.verdict.value}: {finding.reason}"))


def first_bad(finding: Finding) -> str:
    """Such as "step 38 bwd over_arch.model.1 huge"; "none" in captured evidence without a bad record, else "-"."""
    metrics: Mapping[str, Any] = finding.receipt.metrics if finding.receipt is not None else {}
    prefix = f"{finding.collector}_first_bad"
    step = metrics.get(f"{prefix}_step")
    if step is None:
        return "none" if metrics else "-"
    words = [metrics.get(f"{prefix}_{key}") for key in ("direction", "layer", "kind")]
    return " ".join([f"step {step}", *(str(word) for word in words if word is not None)])
