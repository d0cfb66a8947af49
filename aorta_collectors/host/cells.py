"""Resuming a probe sweep: a cell counts as done only if its evidence is there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta.run.collectors import CONFIG_KEY_COLLECT
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
        missing = _without_evidence(Path(run_dir) / safe_slug(cell.name), frozenset(names))
        if missing:
            log.info("cell %r: run again, since %s", cell.name, missing)
            kwargs["resume_existing"] = False
    returned = original(cell, recipe, run_dir, sidecar_files, **kwargs)
    if names:
        trials, error = returned[0], returned[1]
        # A trial that the dispatcher ran carries its request; one that an embedding program made up does not, and
        # there is nothing to hold it against.
        asked = [trial.trial_id for trial in trials if CONFIG_KEY_COLLECT in (getattr(trial, "config", None) or {})]
        attachment.outcomes[cell.name] = CellOutcome(tuple(asked), error)
    return returned


def _without_evidence(cell_dir: Path, names: frozenset[str]) -> str:
    """Why the cell cannot be resumed, or ""."""
    if not cell_dir.is_dir():
        return ""
    try:
        findings = receipts_of(cell_dir, names)
    except ArtifactError as error:
        return str(error)
    lacking = [finding for finding in findings if not finding.tolerated]
    return f"trial {lacking[0].trial} has {lacking[0].verdict.value}: {lacking[0].reason}" if lacking else ""
