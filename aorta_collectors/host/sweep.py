"""After a sweep: say which cells have verified evidence, and do not exit 0 where one that asked for it has none."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from aorta.triage.output import safe_slug

from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError, CollectorsError
from aorta_collectors.evidence.ledger import NOT_YET, Requested, write_ledger
from aorta_collectors.evidence.run import Finding, receipts_of
from aorta_collectors.host.attachment import Attachment, CellOutcome
from aorta_collectors.host.planned import refuse_launches
from aorta_collectors.report.after_sweep import write_beside
from aorta_collectors.report.evidence import render

_ENDED = "the sweep ended before this cell"


def run_recipe_locked(
    attachment: Attachment, original: Callable[..., Path], *, recipe: Any, should_write: bool = True, **kwargs: Any
) -> Path:
    """The host's sweep, then the evidence of its cells.

    Raises:
        click.ClickException: A launch is refused, of which no evidence can come: each trial would fail at its setup.
            Or a request for evidence is not satisfied. The matrix has been written by then. An error of the sweep
            itself is passed on instead.
    """
    refuse_launches(attachment, recipe, kwargs["subprocess_argv"])
    requested = {cell.name: attachment.ours(cell.effective_collect(recipe.collect)) for cell in recipe.cells}
    names = frozenset(name for cell_names in requested.values() for name in cell_names)
    if not names or not should_write:
        return original(recipe=recipe, should_write=should_write, **kwargs)
    run_dir: Path = kwargs["run_dir"]
    attachment.outcomes = outcomes = _Outcomes(run_dir, requested)
    try:
        outcomes.note(NOT_YET)
    except CollectorsError as error:
        raise click.ClickException(f"nothing was run, since no evidence can be kept: {error}") from None
    try:
        original(recipe=recipe, should_write=should_write, **kwargs)
    except Exception as error:
        # The sweep's own error is the one to see; the evidence of the cells that ran is shown beside it.
        render(_findings(run_dir, names, outcomes.entries(_ENDED)), sys.stdout)
        write_beside(run_dir, sys.stdout)
        with contextlib.suppress(CollectorsError):
            outcomes.note(_ENDED)
        if isinstance(error, OSError):
            # A full disk, or a directory that is gone: nothing that a traceback would explain.
            raise click.ClickException(f"aorta could not write its results below {run_dir}: {error}") from error
        raise
    findings = _findings(run_dir, names, outcomes.entries(_ENDED))
    render(findings, sys.stdout)
    write_beside(run_dir, sys.stdout)
    try:
        outcomes.note(_ENDED)
    except CollectorsError as error:
        raise click.ClickException(f"what this sweep was asked for cannot be recorded: {error}") from None
    lacking = [finding for finding in findings if not finding.tolerated]
    if lacking:
        cells = ", ".join(dict.fromkeys(finding.cell for finding in lacking))
        raise click.ClickException(
            f"{len(lacking)} of {len(findings)} requests for evidence not satisfied (cells: {cells}). "
            f"Details: aorta-collectors verify {run_dir}"
        )
    return run_dir


class _Outcomes(dict[str, CellOutcome]):
    """The cells that have ended, by name. Each is in the ledger at once, since a killed sweep leaves no other word."""

    def __init__(self, run_dir: Path, requested: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._requested = requested

    def __setitem__(self, cell: str, outcome: CellOutcome) -> None:
        super().__setitem__(cell, outcome)
        with contextlib.suppress(CollectorsError):  # the one at the end of the sweep is told
            self.note(NOT_YET)

    def note(self, open_cells: str) -> None:
        """Write the ledger; `open_cells` is what it says of cells without an outcome. Raises ArtifactError."""
        write_ledger(self._run_dir, self.entries(open_cells))

    def entries(self, open_cells: str) -> list[Requested]:
        entries: list[Requested] = []
        for cell, collectors in self._requested.items():
            outcome = self.get(cell, CellOutcome((), open_cells))
            for name in collectors:
                entries += [Requested(safe_slug(cell), trial, name) for trial in outcome.trials]
                if outcome.error is not None:
                    entries.append(Requested(safe_slug(cell), "-", name, outcome.error))
        return entries


def _findings(run_dir: Path, names: frozenset[str], entries: Sequence[Requested]) -> list[Finding]:
    """What the receipts of this run say, in the recipe's order, with a finding for each trial that left no record.

    Only this run's trials count: those of an earlier, longer one may still lie there.
    """
    try:
        found = {(finding.cell, finding.trial, finding.collector): finding for finding in receipts_of(run_dir, names)}
        gone = ""
    except ArtifactError as error:
        found, gone = {}, str(error)
    return [
        found.get((entry.cell, entry.trial, entry.collector))
        or Finding(entry.cell, entry.trial, entry.collector, Verdict.MISSING, gone or entry.reason, run_dir, run_dir)
        for entry in entries
    ]
