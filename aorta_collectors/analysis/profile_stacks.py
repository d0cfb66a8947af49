"""Bricks as stacks of module paths, for flamegraphs: forward and backward are two roots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.numerics.spans.span import BACKWARD, FORWARD

_ROOT = "(root)"
# No model nests as deep; a file may say anything.
_DEEPEST = 200


@dataclass
class Frame:
    """One module in one direction, or one of the two roots.

    Attributes:
        name: Its path below the enclosing frame's; its class for a model.
        brick: None for the two roots.
        own_us: Its own time; total_us: with all frames inside.
        inner: In the order of their paths, numbers as numbers.
    """

    name: str
    brick: Brick | None = None
    own_us: float = 0.0
    total_us: float = 0.0
    inner: list[Frame] = field(default_factory=list)

    def depth(self) -> int:
        """Frames above one another, this one included."""
        return 1 + max((frame.depth() for frame in self.inner), default=0)

    def stacks(self, above: tuple[Frame, ...] = ()) -> Iterator[tuple[Frame, ...]]:
        """This frame and all inside, each below those that enclose it."""
        here = (*above, self)
        yield here
        for frame in self.inner:
            yield from frame.stacks(here)


def stacks_of(bricks: Sequence[Brick]) -> tuple[Frame, ...]:
    """The roots, without those that have no time."""
    found = (_root(direction, bricks) for direction in (FORWARD, BACKWARD))
    return tuple(frame for frame in found if frame.total_us > 0)


def _root(direction: str, bricks: Sequence[Brick]) -> Frame:
    root = Frame(direction)
    frames: dict[str, Frame] = {}
    depths: dict[str, int] = {}
    for brick in sorted((brick for brick in bricks if brick.direction == direction), key=_order):
        above = _enclosing(brick.layer, frames)
        frame = Frame(_name(brick, above), brick, brick.self_us)
        depths[brick.layer] = 1 + (0 if above is None else depths[above])
        if depths[brick.layer] < _DEEPEST:  # what is below stands beside it
            frames[brick.layer] = frame
        (root if above is None else frames[above]).inner.append(frame)
    _sum(root)
    return root


def _order(brick: Brick) -> tuple[tuple[bool, int, str], ...]:
    """Models before their parts, and these by path with numbers as numbers."""
    parts = brick.layer.removesuffix(_ROOT).removesuffix(".").split(".")
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts if part)


def _enclosing(layer: str, frames: Mapping[str, Frame]) -> str | None:
    """The nearest frame above by path; the model's, where it has one. Parts of further models have its label first."""
    if layer == _ROOT or layer.endswith(f".{_ROOT}"):
        return None
    path, dot, _ = layer.rpartition(".")
    while dot and path not in frames:
        path, dot, _ = path.rpartition(".")
    model = f"{layer.partition('.')[0]}.{_ROOT}"
    return next((above for above in (path, model, _ROOT) if above in frames), None)


def _name(brick: Brick, above: str | None) -> str:
    if brick.layer == _ROOT:
        return brick.module_type
    if above is None or above == _ROOT:
        return brick.layer.removesuffix(f".{_ROOT}")
    return brick.layer[len(above.removesuffix(f".{_ROOT}")) + 1 :]


def _sum(frame: Frame) -> float:
    frame.total_us = frame.own_us + sum(map(_sum, frame.inner))
    return frame.total_us
