"""After a sweep: say which cells have verified evidence, and do not exit 0 where one that asked for it has none."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from aorta.triage.output import safe_slug

from aorta_collectors.api import Verdict
from aorta_collectors.errors import CollectorsError
from aorta_collectors.evidence.ledger import Requested, write_ledger
from aorta_collectors.evidence.run import Finding, receipts_of
from aorta_collectors.evidence.table import render
from aorta_collectors.host.attachment import Attachment, CellOutcome


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
    attachment.outcomes.clear()
    try:
        original(recipe=recipe, should_write=should_write, **kwargs)
    except Exception:
        # The sweep's own error is the one to see; the evidence of the cells that ran is shown beside it.
        with contextlib.suppress(CollectorsError):
            render(_findings(run_dir, requested, names, attachment.outcomes), sys.stdout)
        raise
    try:
        findings = _findings(run_dir, requested, names, attachment.outcomes)
    except CollectorsError as error:
        raise click.ClickException(f"the evidence of this sweep cannot be read: {error}") from None
    render(findings, sys.stdout)
    lacking = [finding for finding in findings if not finding.tolerated]
    if lacking:
        cells = ", ".join(dict.fromkeys(finding.cell for finding in lacking))
        raise click.ClickException(
            f"{len(lacking)} of {len(findings)} requests for evidence not satisfied (cells: {cells}). "
            f"Details: aorta-collectors verify {run_dir}"
        )
    return run_dir


def _findings(
    run_dir: Path,
    requested: Mapping[str, tuple[str, ...]],
    names: frozenset[str],
    outcomes: Mapping[str, CellOutcome],
) -> list[Finding]:
    """What the receipts of this run say, in the recipe's order, with a finding for each trial that left no record.

    Only this run's trials count: those of an earlier, longer one may still lie there.
    """
    found = {(finding.cell, finding.trial, finding.collector): finding for finding in receipts_of(run_dir, names)}
    entries: list[Requested] = []
    for cell, collectors in requested.items():
        outcome = outcomes.get(cell, CellOutcome((), "the sweep ended before this cell"))
        for name in collectors:
            entries += [Requested(safe_slug(cell), trial, name) for trial in outcome.trials]
            if outcome.error is not None:
                entries.append(Requested(safe_slug(cell), "-", name, outcome.error))
    write_ledger(run_dir, entries)
    return [
        found.get((entry.cell, entry.trial, entry.collector))
        or Finding(entry.cell, entry.trial, entry.collector, Verdict.MISSING, entry.reason, run_dir, run_dir)
        for entry in entries
    ]
