"""Bricks of repeated layers taken together: h.0.mlp, h.1.mlp and so on as h.*.mlp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.analysis.numerics.processes import weighted


@dataclass(frozen=True)
class Group:
    """Bricks of one class and direction whose paths differ in numbers alone.

    Attributes:
        pattern: Their path with * for numbers; the path itself, where there is one.
        count: How many they are.
        self_ms_per_step, share: Of all together.
        slowest: Path of the one with the longest time of its own.
    """

    pattern: str
    module_type: str
    direction: str
    count: int
    self_ms_per_step: float | None
    share: float | None
    efficiency: float | None
    slowest: str


def pattern_of(layer: str) -> str:
    """The path with * in the place of numbers, all but a last one after another: h.0.mlp.2 is h.*.mlp.2.

    The parts of a sequence that lies in a repeated layer differ from one another more than those layers do.
    """
    *above, last = layer.split(".")
    starred = ["*" if part.isdecimal() else part for part in above]
    return ".".join([*starred, "*" if last.isdecimal() and "*" not in starred else last])


def groups_of(bricks: Sequence[Brick]) -> tuple[Group, ...]:
    """The one that takes longest first."""
    found: dict[tuple[str, str, str], list[Brick]] = {}
    for brick in bricks:
        found.setdefault((pattern_of(brick.layer), brick.module_type, brick.direction), []).append(brick)
    groups = [_group(*key, of_group) for key, of_group in found.items()]
    return tuple(sorted(groups, key=lambda group: -(group.share or 0.0)))


def _group(pattern: str, module_type: str, direction: str, bricks: Sequence[Brick]) -> Group:
    times = [brick.self_ms_per_step for brick in bricks if brick.self_ms_per_step is not None]
    shares = [brick.share for brick in bricks if brick.share is not None]
    slowest = max(bricks, key=lambda brick: brick.self_us)
    return Group(
        pattern if len(bricks) > 1 else slowest.layer,
        module_type,
        direction,
        len(bricks),
        sum(times) if times else None,
        sum(shares) if shares else None,
        weighted([(brick.efficiency, brick.self_us) for brick in bricks]),
        slowest.layer,
    )
