"""What a report is made of: the captures of both collectors below a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aorta_collectors.analysis.captures import NUMERICS, Captures
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError


@dataclass(frozen=True)
class Found:
    """Attributes:
    captures: All trials, with what layer_numerics left in them.
    numerics: The same with what numerics left; without trials where it left nothing.
    """

    captures: Captures
    numerics: Captures

    @property
    def lines_bytes(self) -> int:
        """Of all lines that a report reads."""
        found = (trial.processes for captures in (self.captures, self.numerics) for trial in captures.trials)
        return sum(sum(process.sizes.values()) for processes in found for process in processes)

    def only(self, cells: Sequence[str] = (), trials: Sequence[str] = (), ranks: Sequence[int] = ()) -> Found:
        """As of captures. Raises ArtifactError where neither collector has what is wanted."""
        chosen, failures = [], []
        for captures in (self.captures, self.numerics):
            try:
                chosen.append(captures.only(cells, trials, ranks))
            except ArtifactError as error:
                failures.append(error)
                chosen.append(Captures(captures.path, ()))
        if len(failures) > 1:
            raise failures[0]
        return _beside_each_other(*chosen)


def found_below(path: Path) -> Found:
    """Find what both collectors left. Raises ArtifactError where neither left anything."""
    failure: ArtifactError | None = None
    try:
        captures = captures_below(path)
    except ArtifactError as error:
        failure, captures = error, Captures(path, ())
    try:
        numerics = captures_below(path, NUMERICS)
    except ArtifactError:
        numerics = Captures(captures.path, ())
    if failure is not None and not numerics.captured:
        raise failure
    return _beside_each_other(captures, numerics)


def _beside_each_other(captures: Captures, numerics: Captures) -> Found:
    """With all trials, and all problems, in the first."""
    known = {trial.key for trial in captures.trials}
    added = tuple(replace(trial, processes=()) for trial in numerics.captured if trial.key not in known)
    problems = tuple(dict.fromkeys((*captures.problems, *numerics.problems)))
    return Found(replace(captures, trials=(*captures.trials, *added), problems=problems), numerics)
