"""A brick: one module of the model, as what is said of its calls knows it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn


@dataclass(eq=False)
class Brick:
    """A module that is watched. Made once, when its root is found.

    Attributes:
        module: A weak reference.
        layer: Path below the root as torch names it; "(root)" for a root; of further models after their label.
        module_type: Its class.
        step_name: EMBED, TRANSFORMER_BLOCK, NORM or LM_HEAD by its kind and position; empty for any other module.
        block: Which of the repeated blocks it is, from 0, or lies in; None outside of them.
        is_leaf: Whether it has no parts.
        is_root: Whether its calls can be steps.
        parent: The watched module that encloses it by path; None for a root.
        number: In the order in which they were found, from 0.
        selected: Whether the `steps` filter lets it be written.
        is_named: Whether it does so by this module's own path or class.
    """

    module: weakref.ref[nn.Module]
    layer: str
    module_type: str
    step_name: str
    block: int | None
    is_leaf: bool
    is_root: bool
    parent: Brick | None
    number: int
    selected: bool = True
    is_named: bool = False


class Timing(NamedTuple):
    """One call of a module, or its part in one backward pass, with all that its parts did.

    Attributes:
        direction: "forward" or "backward".
        start_ns, end_ns: time.perf_counter_ns().
        overhead_ns: What observing took in between.
        is_recompute: Whether activation checkpointing called the module again, inside of a backward pass.
    """

    brick: Brick
    direction: str
    start_ns: int
    end_ns: int
    overhead_ns: int
    is_recompute: bool = False

    @property
    def own_ns(self) -> int:
        return self.end_ns - self.start_ns - self.overhead_ns
