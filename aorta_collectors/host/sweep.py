"""After a sweep: say which cells have verified evidence, and do not exit 0 where one that asked for it has none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.run import Finding, receipts_of
from aorta_collectors.evidence.table import render
from aorta_collectors.host.attachment import Attachment


def run_recipe_locked(
    attachment: Attachment, original: Callable[..., Path], *, recipe: Any, should_write: bool = True, **kwargs: Any
) -> Path:
    """The host's sweep, then the evidence of its cells.

    Raises:
        click.ClickException: A request for evidence is not satisfied. The matrix has been written by then. An error of
            the sweep itself is passed on instead.
    """
    requested = {cell.name: attachment.ours(cell.effective_collect(recipe.collect)) for cell in recipe.cells}
    names = frozenset(name for cell_names in requested.values() for name in cell_names)
    if not names or not should_write:
        return original(recipe=recipe, should_write=should_write, **kwargs)
    run_dir: Path = kwargs["run_dir"]
    try:
        original(recipe=recipe, should_write=should_write, **kwargs)
    finally:
        findings = _findings(run_dir, requested, names)
        render(findings, sys.stdout)
    lacking = [finding for finding in findings if not finding.tolerated]
    if lacking:
        cells = ", ".join(dict.fromkeys(finding.cell for finding in lacking))
        raise click.ClickException(
            f"{len(lacking)} of {len(findings)} requests for evidence not satisfied (cells: {cells}). "
            f"Details: aorta-collectors verify {run_dir}"
        )
    return run_dir


def _findings(run_dir: Path, requested: dict[str, tuple[str, ...]], names: frozenset[str]) -> list[Finding]:
    """What the receipts of this run say, and a finding for each cell whose trials never came to be."""
    from aorta.triage.output import safe_slug

    wanted = {(safe_slug(cell), name) for cell, cell_names in requested.items() for name in cell_names}
    findings = [finding for finding in receipts_of(run_dir, names) if (finding.cell, finding.collector) in wanted]
    for cell, name in sorted(wanted - {(finding.cell, finding.collector) for finding in findings}):
        reason = "no trial of this cell was recorded; see the sweep's own summary above"
        findings.append(Finding(cell, "-", name, Verdict.MISSING, reason, run_dir, run_dir))
    return findings
