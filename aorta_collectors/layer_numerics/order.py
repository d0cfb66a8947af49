"""In which order the records of several ranks stand.

Ranks have no clock in common. What they have in common is the program, so that a record's place in it is compared:

1. The attempt: torchrun starts no worker anew before all of the last attempt have ended.
2. The training step. Steps that evaluated are not counted, since a rank may evaluate alone, or longer than others;
   what an evaluation shows comes after the training step before it.
3. Where the ranks' models differ, the part of the step: what is read as it begins, forward, backward, the gradients
   before the optimizer.
4. Where they have no layer's name in common, as stages of a pipeline do, the stage: the lowest rank's first in the
   forward, last in the backward. Stages whose layers have the same names cannot be told from one model on all ranks.
5. The place within the step, `seq`, which is the same on ranks that run the same model.
6. The rank, where all that is the same.

So on ranks of one model it is the order in which each would have run alone. Programs that a trial ran one after the
other have nothing in common; they are lined up as if they had run beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_PARTS = {"param": 0, "fwd": 1, "bwd": 2, "grad": 3}
_FORWARD, _BACKWARD = 1, 2

Position = tuple[int, ...]


class Line(NamedTuple):
    """Where the records of one process stand among those of all. Positions are compared as tuples.

    Attributes:
        by_part: Whether the part of the step comes before the place within it.
        stage: Of a pipeline, from 0; 0 where there is none.
    """

    restart: int
    rank: int
    by_part: bool
    stage: int

    def position(self, found: Mapping[str, Any], place: int = 0) -> Position:
        """Of a record, or of a summary's short form of one.

        Args:
            place: Within the step, where that has no `seq`, as the stock logger's have none.
        """
        part = _part(found) if self.by_part else 0
        return (
            self.restart,
            training_step(found),
            found["step"] if found.get("evaluation") else 0,
            part,
            self.stage if part < _BACKWARD else -self.stage,
            found.get("seq", place),
            self.rank,
        )


class Alignment:
    """How the records of some processes are lined up.

    Args:
        summaries: Of the processes.
    """

    def __init__(self, summaries: Iterable[Mapping[str, Any]]) -> None:
        self._stages: dict[frozenset[str], int] = {}
        for summary in sorted(summaries, key=lambda summary: summary["rank"]):
            names = frozenset(summary.get("watched_names", ()))
            if names:
                self._stages.setdefault(names, len(self._stages))
        self._by_part = len(self._stages) > 1
        self._are_stages = sum(map(len, self._stages)) == len(frozenset().union(*self._stages))

    def line(self, summary: Mapping[str, Any]) -> Line:
        """The line of the process with this summary, one of those given."""
        stage = self._stages.get(frozenset(summary.get("watched_names", ())), 0) if self._are_stages else 0
        return Line(summary.get("restart", 0), summary["rank"], self._by_part, stage)


def training_step(found: Mapping[str, Any]) -> int:
    """How many training steps had begun when something was found."""
    return int(found["step"] - found.get("evaluation_steps", 0))


def _part(found: Mapping[str, Any]) -> int:
    direction = found.get("direction")
    if direction == "pipeline":
        # A followed tensor is read on its way to the model, and in there after some modules' calls.
        return _FORWARD if found.get("checkpoint") else 0
    part = _PARTS.get(str(direction), 0)
    return max(part, _BACKWARD) if found.get("recompute") else part
