"""Resuming a probe sweep: a cell counts as done only if its evidence is there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.triage.output import safe_slug

from aorta_collectors.environment import switched_off
from aorta_collectors.errors import CollectorsError
from aorta_collectors.evidence.asked_for import AskedFor
from aorta_collectors.evidence.run import Finding, verify_run
from aorta_collectors.host.attachment import Attachment, CellOutcome
from aorta_collectors.host.preflight import cell_environment

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

    It may have been run before the plugin was installed, its evidence may have been missing, or may have been changed
    or removed since: the host would take its trials over as they are.
    """
    names = attachment.ours(cell.effective_collect(recipe.collect))
    if names and kwargs.get("resume_existing"):
        missing = _Wanted.of(cell, recipe, names).without_evidence(attachment, Path(run_dir) / safe_slug(cell.name))
        if missing:
            log.warning("cell %r: run again, since %s", cell.name, missing)
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


@dataclass(frozen=True)
class _Wanted:
    """What a finished cell must have for its trials to be taken over.

    Attributes:
        most: Trials that count: those of an earlier, longer run lie beyond.
        off: Whether the cell runs uninstrumented.
        retained: Whether the recipe has a retain: block, which may have removed artifacts.
    """

    cell: str
    names: tuple[str, ...]
    options: Mapping[str, Mapping[str, str]]
    most: int
    off: bool
    retained: bool

    @classmethod
    def of(cls, cell: Any, recipe: Any, names: tuple[str, ...]) -> _Wanted:
        return cls(
            cell.name,
            names,
            cell.effective_collect_options(recipe.collect_options),
            recipe.stop_after.max_trials if recipe.stop_after is not None else cell.effective_trials(recipe.trials),
            switched_off(cell_environment(cell, recipe)),
            recipe.probe_extras is not None and recipe.probe_extras.retain is not None,
        )

    def without_evidence(self, attachment: Attachment, cell_dir: Path) -> str:
        """Why the cell cannot be resumed, or "". The artifacts are verified again, as they are now."""
        if not cell_dir.is_dir():
            return ""
        try:
            findings = verify_run(cell_dir, frozenset(self.names), attachment.load)
        except CollectorsError as error:
            return str(error)
        for finding in findings:
            index = finding.trial.rpartition("_t")[2]
            if not index.isdigit() or int(index) < self.most:
                fault = self._fault(finding)
                if fault:
                    return f"trial {finding.trial} has {fault}"
        return ""

    def _fault(self, finding: Finding) -> str:
        """What is wrong with the receipt of one trial, or "" if it answers what is asked for now."""
        receipt = finding.receipt
        if receipt is None or not finding.tolerated:
            return f"{finding.verdict.value}: {finding.reason}"
        if receipt.cell != self.cell:
            return f"the receipt of cell {receipt.cell!r}"
        asked_for = AskedFor(self.options.get(finding.collector) or {}, self.off, self.retained)
        return asked_for.contradiction(receipt)
