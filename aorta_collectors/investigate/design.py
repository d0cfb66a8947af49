"""The order of an investigation's runs: declared before the first one, a pure function of the design.

What the machine does over time, getting warm or busy, must not be taken for a difference of the variants. So the two
take turns in coming first where time or memory is measured, after as many runs of each that do not count. A run without
the tool stands directly beside the one with it that it is compared with, and takes turns with it in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.investigate.statistics import LEAST

BASELINE, CANDIDATE = "baseline", "candidate"
VARIANTS = (BASELINE, CANDIDATE)
KINDS = ("values", "finite", "memory", "timing")
ORDERS = ("pair", "counterbalanced", "random")
#: Kinds whose answers vary from run to run by themselves.
NOISY = ("memory", "timing")


@dataclass(frozen=True)
class Design:
    """How often each variant runs, and in which order.

    Attributes:
        order: "pair": the baseline first in every repetition. "counterbalanced": AB, BA, AB, ... "random": each
            repetition in an order drawn from `order_seed`.
        order_seed: Of a random order; None for the others.
        warm_up: Runs of each variant that do not count, before the first that does.
        observer_effect: Whether each variant also runs without the tool.
        every_repetition: Whether it does so in every repetition, or in the first alone.
    """

    order: str
    order_seed: int | None
    repetitions: int
    warm_up: int
    observer_effect: bool
    every_repetition: bool = False

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        order: str | None = None,
        order_seed: int | None = None,
        repetitions: int | None = None,
        warm_up: int | None = None,
        observer_effect: bool = True,
    ) -> Design:
        """The design for a kind of question; what is None is the kind's own."""
        noisy = kind in NOISY
        order = order or ("counterbalanced" if noisy else "pair")
        return cls(
            order,
            (order_seed or 0) if order == "random" else None,
            # As many as an interval takes: fewer would answer with values alone.
            repetitions or (LEAST if noisy else 1),
            (1 if noisy else 0) if warm_up is None else warm_up,
            observer_effect,
            every_repetition=noisy,
        )

    def to_json(self) -> dict[str, Any]:
        """As in metadata.json, from whose kind `every_repetition` follows."""
        return {
            "order": self.order,
            "order_seed": self.order_seed,
            "repetitions": self.repetitions,
            "warm_up": self.warm_up,
            "observer_effect": self.observer_effect,
        }


def schedule_of(design: Design, variants: Sequence[str], seed: int | None) -> list[dict[str, Any]]:
    """The runs in their order, as in metadata.json.

    Args:
        variants: Names, the baseline first.
        seed: Of the first repetition; the next one has one more. Both variants of a repetition have the same.
    """
    found: list[dict[str, Any]] = []

    def add(variant: str, repetition: int, *, tool: bool = True, warm_up: bool = False) -> None:
        number = len(found) + 1
        name = f"{number:03d}-{variant}-{'warmup-' if warm_up else ''}{repetition}{'' if tool else '-bare'}"
        found.append(
            {
                "number": number,
                "name": name,
                "variant": variant,
                "repetition": repetition,
                "seed": None if seed is None else seed + repetition - 1,
                "tool": tool,
                "warm_up": warm_up,
            }
        )

    for repetition in range(1, design.warm_up + 1):
        for variant in variants:
            add(variant, repetition, warm_up=True)
    draw = random.Random(design.order_seed)
    for repetition in range(1, design.repetitions + 1):
        with_bare = design.observer_effect and (design.every_repetition or repetition == 1)
        for variant, tools in _one(design.order, repetition, variants, [True, False] if with_bare else [True], draw):
            for tool in tools:
                add(variant, repetition, tool=tool)
    return found


def _one(
    order: str, repetition: int, variants: Sequence[str], tools: Sequence[bool], draw: random.Random
) -> list[tuple[str, list[bool]]]:
    """The variants of one repetition in their order, each with the order of its runs with and without the tool."""
    if order == "random":
        shuffled = draw.sample(list(variants), len(variants))
        return [(variant, draw.sample(list(tools), len(tools))) for variant in shuffled]
    if order == "counterbalanced" and repetition % 2 == 0:
        return [(variant, list(tools)[::-1]) for variant in reversed(variants)]
    return [(variant, list(tools)) for variant in variants]
