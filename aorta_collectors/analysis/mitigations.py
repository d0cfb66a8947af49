"""Which mitigations move a bad value, or remove it: the cells of a sweep against its baseline.

Nothing is called removed that was not looked for: every trial of the cell has verified evidence then, of every rank, of
at least as many training steps as it took in the baseline. Nor is it called moved where a trial may have gone bad
before, unseen. What observers that look at something else have seen is not compared.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import cell_place
from aorta_collectors.analysis.first_bad import OfProcess, OfTrial
from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.strict_json import check_extent

_MATRIX = "matrix.json"
_NO_MITIGATION = "none"
# Options that decide what is written and when, but not what is seen to be bad.
_NEUTRAL = {"diagnostics", "sample_every", "pre_context", "max_records", "flush_sec"}


class Outcome(str, enum.Enum):
    """What became of the baseline's bad value in a cell."""

    BASELINE = "baseline"
    SAME = "same"
    EARLIER = "earlier"
    LATER = "later"
    ELSEWHERE = "elsewhere"
    REMOVED = "removed"
    NOT_REACHED = "not reached"
    NO_EVIDENCE = "no evidence"
    #: What was seen does not tell which of these it is.
    UNDECIDED = "undecided"
    #: The baseline itself is not bad: this cell is.
    APPEARS = "appears"
    #: Neither is bad.
    CLEAN = "clean"


@dataclass(frozen=True)
class OfCell:
    """The trials of one cell.

    Attributes:
        run: The sweep's directory, as a trial has it.
        trials: In their order.
        outcome: None where there is no baseline to compare with.
        steps_later: Training steps by which the earliest bad value comes later than in the baseline; negative for
            earlier. None where one of the two has none.
        why: What keeps an answer away, or bounds it; empty otherwise.
    """

    run: str
    cell: str
    trials: tuple[OfTrial, ...]
    outcome: Outcome | None = None
    steps_later: int | None = None
    why: str = ""

    @property
    def label(self) -> str:
        """Its name, after the sweep's where there are several."""
        return cell_place(self.run, self.cell)

    @property
    def mitigations(self) -> tuple[str, ...]:
        """Those applied, without `none`."""
        applied = self.trials[0].trial.record.get("mitigations_applied")
        names = applied if isinstance(applied, list) else []
        return tuple(str(name) for name in names if name != _NO_MITIGATION)

    @property
    def bad(self) -> tuple[OfTrial, ...]:
        return tuple(trial for trial in self.trials if trial.earliest is not None)

    @property
    def earliest(self) -> OfProcess | None:
        """Of all its trials."""
        found = [trial.earliest for trial in self.trials if trial.earliest is not None]
        return min(found, key=_training_step, default=None)

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last training step in which a trial went bad first."""
        found = [_training_step(trial.earliest) for trial in self.trials if trial.earliest is not None]
        return (min(found), max(found)) if found else None

    @property
    def layers(self) -> tuple[str, ...]:
        """Where its trials went bad first."""
        faults = [trial.earliest.fault for trial in self.trials if trial.earliest is not None]
        return tuple(dict.fromkeys(str(fault["layer"]) for fault in faults if fault is not None))


def across_cells(path: Path, trials: Sequence[OfTrial]) -> list[OfCell]:
    """The cells, each compared with the baseline of its sweep, which comes first.

    Where a sweep has one cell, nothing is compared.

    Args:
        path: Where the trials were found.
    """
    grouped: dict[str, dict[str, list[OfTrial]]] = {}
    for trial in trials:
        grouped.setdefault(trial.trial.run, {}).setdefault(trial.trial.cell, []).append(trial)
    found: list[OfCell] = []
    for run, of_run in grouped.items():
        cells = [OfCell(run, cell, tuple(of_cell)) for cell, of_cell in of_run.items()]
        if len(cells) > 1:
            baseline = _baseline(cells, _named_baseline(path / run))
            cells = [_compared(cell, baseline) for cell in sorted(cells, key=lambda cell: cell is not baseline)]
        found += cells
    return found


def _baseline(cells: Sequence[OfCell], named: str | None) -> OfCell:
    by_name = {cell.cell: cell for cell in cells}
    if named in by_name:
        return by_name[named]
    # Of a trial that still runs it is not known which mitigations it has.
    ended = [cell for cell in cells if "mitigations_applied" in cell.trials[0].trial.record]
    return next((cell for cell in ended if not cell.mitigations), cells[0])


def _named_baseline(run_dir: Path) -> str | None:
    """What the host's matrix says; None where there is none yet, or none that can be read."""
    try:
        with Anchor(run_dir).open(run_dir) as directory:
            content = directory.read(_MATRIX)
        check_extent(content)
        matrix = json.loads(content)  # the host writes NaN into its numbers
    except (ArtifactError, ValueError, RecursionError):
        return None
    named = matrix.get("baseline_cell") if isinstance(matrix, dict) else None
    return named if isinstance(named, str) else None


def _compared(cell: OfCell, baseline: OfCell) -> OfCell:
    if cell is baseline:
        return replace(cell, outcome=Outcome.BASELINE, why=_gap(cell) if cell.steps is None else "")
    if cell.steps is None:
        outcome, why = _of_clean(cell, baseline)
        return replace(cell, outcome=outcome, why=why)
    if baseline.steps is None:
        return _appearing(cell, baseline)
    moved = "" if set(cell.layers) & set(baseline.layers) else "to another layer"
    steps_later = cell.steps[0] - baseline.steps[0]
    overlaps = cell.steps[0] <= baseline.steps[1] and cell.steps[1] >= baseline.steps[0]
    if overlaps and not moved:
        return replace(cell, outcome=Outcome.SAME, steps_later=steps_later)
    if doubt := _watched_otherwise(cell, baseline):
        return replace(cell, outcome=Outcome.UNDECIDED, steps_later=steps_later, why=doubt)
    if overlaps:
        outcome, doubt = Outcome.ELSEWHERE, _bad_by(cell, 0) or _of_baseline(_bad_by(baseline, 0))
    elif cell.steps[0] > baseline.steps[1]:
        outcome, doubt = Outcome.LATER, _bad_by(cell, baseline.steps[1])
    else:
        outcome, doubt = Outcome.EARLIER, _of_baseline(_bad_by(baseline, cell.steps[1]))
    if doubt:
        return replace(cell, outcome=Outcome.UNDECIDED, steps_later=steps_later, why=doubt)
    return replace(cell, outcome=outcome, steps_later=steps_later, why=moved)


def _appearing(cell: OfCell, baseline: OfCell) -> OfCell:
    """A cell that is bad, while the baseline was not seen to be."""
    assert cell.steps is not None
    if gap := _gap(baseline):
        return replace(cell, outcome=Outcome.NO_EVIDENCE, why=_of_baseline(gap))
    if doubt := _watched_otherwise(cell, baseline):
        return replace(cell, outcome=Outcome.UNDECIDED, why=doubt)
    if doubt := _of_baseline(_bad_by(baseline, cell.steps[0])):
        return replace(cell, outcome=Outcome.UNDECIDED, why=doubt)
    return replace(cell, outcome=Outcome.APPEARS)


def _of_clean(cell: OfCell, baseline: OfCell) -> tuple[Outcome, str]:
    with_evidence = [trial for trial in cell.trials if not _lack(trial)]
    if not with_evidence:
        return Outcome.NO_EVIDENCE, _gap(cell)
    if baseline.steps is None:
        gap = _gap(baseline)
        return (Outcome.NO_EVIDENCE, _of_baseline(gap)) if gap else (Outcome.CLEAN, _gap(cell))
    covered, needed = min(trial.covered for trial in with_evidence), baseline.steps[1]
    if covered < needed:
        return Outcome.NOT_REACHED, f"seen up to step {covered}, the baseline goes bad in step {needed}"
    if len(with_evidence) < len(cell.trials):
        return Outcome.NO_EVIDENCE, f"clean in {len(with_evidence)} of {len(cell.trials)} trials; {_gap(cell)}"
    if doubt := _watched_otherwise(cell, baseline):
        return Outcome.UNDECIDED, doubt
    if len(baseline.bad) < len(baseline.trials):
        return Outcome.REMOVED, f"the baseline was seen bad in {len(baseline.bad)} of {len(baseline.trials)} trials"
    return Outcome.REMOVED, ""


def _bad_by(cell: OfCell, step: int) -> str:
    """Why one of the trials may have been bad up to a step without being seen to be; empty where none may."""
    for trial in cell.trials:
        if lack := _lack(trial):
            return f"trial {trial.trial.index} {lack}"
        if trial.earliest is None and trial.covered < step:
            return f"trial {trial.trial.index} was seen up to step {trial.covered}"
    return ""


def _of_baseline(why: str) -> str:
    return why and f"of the baseline: {why}"


def _watched_otherwise(cell: OfCell, baseline: OfCell) -> str:
    """In what the cells' observers differ that decides what is seen to be bad; empty where they do not."""
    trials = [of.trial for of in (*cell.trials, *baseline.trials)]
    observers: list[Mapping[str, Any]] = [
        process.summary["config"] for trial in trials for process in trial.processes if "config" in process.summary
    ]
    receipts = [trial.receipt for trial in trials if trial.receipt is not None]
    if any(receipt.verdict == Verdict.PRUNED.value for receipt in receipts):
        observers = [receipt.options for receipt in receipts]  # there is no summary left to tell what was in force
    names = sorted({name for observer in observers for name in observer} - _NEUTRAL)
    differing = [name for name in names if any(one.get(name) != observers[0].get(name) for one in observers)]
    return f"observed otherwise than the baseline: {', '.join(differing)}" if differing else ""


def _gap(cell: OfCell) -> str:
    """Why one of the trials proves nothing; empty where all are verified."""
    return next((f"trial {trial.trial.index} {lack}" for trial in cell.trials if (lack := _lack(trial))), "")


def _lack(trial: OfTrial) -> str:
    """Why what was not seen of a trial may have been there all the same."""
    if trial.verdict in (Verdict.CAPTURED.value, Verdict.PRUNED.value):
        return "" if trial.processes else f"is {trial.verdict}, and nothing of it is left"
    if trial.verdict is not None:
        return f"is {trial.verdict}"
    return "is not verified" if trial.processes else "has no evidence"


def _training_step(process: OfProcess) -> int:
    assert process.fault is not None
    return int(process.fault["training_step"])
