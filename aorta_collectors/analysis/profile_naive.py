"""Bricks that take a multiple of what the roofline allows, and what would help, each by what was seen of it.

The time that would be saved is that beyond what the roofline allows: nobody reaches all of it. Bricks of repeated
layers of which the same can be said are one entry. What would help stands in `naive_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.analysis.numerics.groups import pattern_of
from aorta_collectors.analysis.numerics.naive_rules import Advice, Precision, Seen, advice_of, attention, precision_of
from aorta_collectors.analysis.profile import Profile


@dataclass(frozen=True)
class Naive:
    """One brick far from what the roofline allows, or such bricks of repeated layers.

    Attributes:
        pattern: The path, with * for numbers of several.
        layers: Of the bricks, the one that would save most first.
        times: Their own time over what is allowed; None where they have no operations at all.
        own_us, allowed_us: Of a call of the first.
        saved_ms: In a step, if all took no more than is allowed; None where no step was measured.
        saved_share: The same as a part of the step.
    """

    pattern: str
    layers: tuple[str, ...]
    direction: str
    module_type: str
    times: float | None
    own_us: float
    allowed_us: float
    saved_ms: float | None
    saved_share: float | None
    bound: str | None
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class NaiveBricks:
    """Attributes:
    threshold: How many times what is allowed was asked for.
    found: What would save most first.
    precision: Products in float32 that a narrower dtype would do faster; None where there are none.
    unknown: Bricks of which it is not known what is allowed.
    """

    threshold: float
    found: tuple[Naive, ...]
    precision: Precision | None
    unknown: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def naive_of(profile: Profile, threshold: float) -> NaiveBricks:
    """Those that take more than `threshold` times what is allowed."""
    looks = {each.key: each for each in profile.escalated}
    attend = attention(profile.escalated)
    done, ranks = profile.throughput, len(profile.ranks)
    samples = done.samples_per_s / done.steps_per_s / ranks if done.samples_per_s and done.steps_per_s else None
    groups: dict[tuple[object, ...], list[tuple[Brick, tuple[Advice, ...]]]] = {}
    unknown = 0
    for brick in profile.bricks:
        own, allowed = brick.self_us_per_call, _allowed(brick)
        unknown += allowed is None and brick.calls > 0
        if own and allowed is not None and own > threshold * allowed:
            seen = Seen(brick, looks.get(brick.key), profile.roofline, samples, brick.key in attend)
            advice = advice_of(seen)
            rules = tuple(each.rule for each in advice)
            key = pattern_of(brick.layer), brick.module_type, brick.direction, brick.bound, rules
            groups.setdefault(key, []).append((brick, advice))
    found = [_naive([brick for brick, _ in bricks], bricks[0][1]) for bricks in groups.values()]
    found.sort(key=lambda each: -(each.saved_ms if each.saved_ms is not None else each.own_us / 1e6))
    return NaiveBricks(threshold, tuple(found), precision_of(profile.bricks, profile.roofline), unknown)


def _allowed(brick: Brick) -> float | None:
    """Microseconds of a call; 0 where nothing in it is for the roofline."""
    return 0.0 if brick.allowed_us is None and brick.bound == "host" else brick.allowed_us


def _naive(bricks: Sequence[Brick], advice: tuple[Advice, ...]) -> Naive:
    """Of bricks that are in the order of their own time."""
    first = bricks[0]
    own = sum(brick.self_us for brick in bricks)
    allowed = sum((_allowed(brick) or 0.0) * brick.calls for brick in bricks)
    parts = [1 - (_allowed(brick) or 0.0) / (brick.self_us_per_call or 1.0) for brick in bricks]
    times = [brick.self_ms_per_step for brick in bricks]
    shares = [brick.share for brick in bricks]
    return Naive(
        pattern_of(first.layer) if len(bricks) > 1 else first.layer,
        tuple(brick.layer for brick in bricks),
        first.direction,
        first.module_type,
        own / allowed if allowed else None,
        first.self_us_per_call or 0.0,
        _allowed(first) or 0.0,
        _saved(times, parts),
        _saved(shares, parts),
        first.bound,
        advice,
    )


def _saved(amounts: Sequence[float | None], parts: Sequence[float]) -> float | None:
    known = [amount * part for amount, part in zip(amounts, parts, strict=True) if amount is not None]
    return sum(known) if known else None
