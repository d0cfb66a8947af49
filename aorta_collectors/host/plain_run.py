"""`aorta run`: its trials are noted down before the first begins, and their evidence is shown after the last."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.ledger import Requested, write_ledger
from aorta_collectors.evidence.run import receipts_of
from aorta_collectors.host.trial_place import TrialPlace
from aorta_collectors.report.evidence import render

log = logging.getLogger("aorta.collectors")

_NO_RECORD = (
    "there is no record of this trial: the run has not come to its end (it goes on, it failed, or it was killed), or "
    "somebody has removed it since"
)


def note_trials(request: Any, names: tuple[str, ...], trial_idx: int, results_dir: Path) -> None:
    """As the first trial of a run without a sweep begins, leave a ledger of all beside where their records will be.

    A sweep keeps a ledger of its own. A run that may stop early has none, since it does not say where it did.
    """
    if trial_idx > 0 or not names or request.cell_name is not None or request.stop_after is not None:
        return
    results_dir, anchor = Path(results_dir), Anchor(Path(results_dir).parent)
    places = [TrialPlace.of(request, index, results_dir, anchor) for index in range(request.trials)]
    entries = [Requested("-", place.trial_id, name, _NO_RECORD) for place in places for name in names]
    try:
        write_ledger(results_dir, entries, anchor)
    except ArtifactError as error:
        log.warning("a trial that does not come to run will not be missed: %s", error)


def show_evidence(request: Any, names: tuple[str, ...], trial_idx: int, results_dir: Path) -> None:
    """As the last trial of a run without a sweep has ended, print what became of all: a sweep does so for its cells.

    A run that may stop early does not say which of its trials is the last.
    """
    if trial_idx + 1 < request.trials or not names or request.cell_name is not None or request.stop_after is not None:
        return
    try:
        findings = receipts_of(Path(results_dir), frozenset(names))
    except ArtifactError as error:
        log.warning("the evidence of this run cannot be shown: %s", error)
        return
    # An earlier, longer run may have left trials there that this one did not make.
    render([found for found in findings if found.index.isdecimal() and int(found.index) <= trial_idx], sys.stdout)
