"""Resuming a probe sweep: a cell counts as done only if its evidence is there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta.triage.output import safe_slug

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.run import receipts_of
from aorta_collectors.host.attachment import Attachment, CellOutcome

log = logging.getLogger("aorta.collectors")


def run_one_cell(
    attachment: Attachment,
    original: Callable[..., Any],
    cell: Any,
    recipe: Any,
    run_dir: Path,
    sidecar_files: tuple[Path, ...],
    **kwargs: Any,
) -> Any:
    """Have a finished cell run again whose trials lack the evidence that is asked for now, and note how it ended.

    It may have been run before the plugin was installed, or its evidence may have been missing: the host would take
    its trials over as they are.
    """
    names = attachment.ours(cell.effective_collect(recipe.collect))
    if names and kwargs.get("resume_existing"):
        most = recipe.stop_after.max_trials if recipe.stop_after is not None else cell.effective_trials(recipe.trials)
        missing = _without_evidence(Path(run_dir) / safe_slug(cell.name), frozenset(names), most)
        if missing:
            log.info("cell %r: run again, since %s", cell.name, missing)
            kwargs["resume_existing"] = False
    attachment.trials_judged.clear()
    returned = original(cell, recipe, run_dir, sidecar_files, **kwargs)
    if names:
        trials, error, resumed = returned[0], returned[1], returned[4]
        # A resumed trial was judged when it ran. Trials that an embedding program made up instead of running them are
        # neither, and there is nothing to hold them against.
        ids = [trial.trial_id for trial in trials] if resumed else list(attachment.trials_judged)
        attachment.outcomes[cell.name] = CellOutcome(tuple(ids), error)
    return returned


def _without_evidence(cell_dir: Path, names: frozenset[str], most: int) -> str:
    """Why the cell cannot be resumed, or "". Trials of an earlier, longer run do not count."""
    if not cell_dir.is_dir():
        return ""
    try:
        findings = receipts_of(cell_dir, names)
    except ArtifactError as error:
        return str(error)
    for finding in findings:
        index = finding.trial.rpartition("_t")[2]
        if not finding.tolerated and (not index.isdigit() or int(index) < most):
            return f"trial {finding.trial} has {finding.verdict.value}: {finding.reason}"
    return ""
