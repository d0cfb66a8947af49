"""A step that is over, as it is handed on: what was seen in it, how that hangs together, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.trace import Mark

_NO_MARK = Mark()


class Outcome(NamedTuple):
    """What became of a step's gradients.

    Attributes:
        scaled: Whether a GradScaler scaled a loss.
        skipped: Optimizers, by id(), that one kept from stepping.
        stepped: Those that stepped.
    """

    scaled: bool = False
    skipped: frozenset[int] = frozenset()
    stepped: frozenset[int] = frozenset()


@dataclass
class StepTrace:
    """A step: all that was seen in it, in order.

    Attributes:
        observations: Every `stats` is readable. The list belongs to whoever is given the trace.
        marks: By index of the observation; empty where no origin is wanted.
        tensors: Copies of tensors that were bad, or may have been, by index of the observation.
        unscanned: Parameters that are not looked at.
        evaluates: Whether the step ran where no gradients are recorded.
        evaluations: Steps so far that did, this one included.
        inside_backward: What was found in the backward pass of compiled code, or None.
    """

    step: int
    observations: list[Observation]
    marks: Mapping[int, Mark] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    tensors: Mapping[int, Tensor] = field(default_factory=dict)
    inside_backward: Any = None
    unscanned: Sequence[str] = ()
    evaluates: bool = False
    evaluations: int = 0

    @cached_property
    def bad(self) -> list[int]:
        """Indices of the observations that are bad, also of those that no records were asked of."""
        return [index for index, seen in enumerate(self.observations) if seen.reduced is not None and seen.stats.bad]

    @cached_property
    def all_recorded(self) -> bool:
        """Whether records were asked of every observation."""
        return all(seen.site.recorded for seen in self.observations)

    def evaluation_fields(self) -> dict[str, Any]:
        """What is said of evaluations with whatever is found in the step; nothing where there was none."""
        fields: dict[str, Any] = {"evaluation": True} if self.evaluates else {}
        return {**fields, "evaluation_steps": self.evaluations} if self.evaluations else fields

    def mark_of(self, index: int) -> Mark:
        """What the observation at `index` belongs to; an empty mark if that was not followed."""
        return self.marks.get(index, _NO_MARK)
