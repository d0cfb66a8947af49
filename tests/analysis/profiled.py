"""Profiles of made-up captures of numerics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import NUMERICS
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.profile import Profile, profile_of
from aorta_collectors.analysis.profile_baseline import Baseline, against, side_of
from aorta_collectors.analysis.search import captures_below
from tests.numerics.synthetic import PHASES_MS, Line, brick, span, step_line, write

PROFILE = {"profile": "deferred"}


def profile_below(path: Path) -> Profile:
    """Of the first trial."""
    with Lines() as lines:
        return profile_of(lines, captures_below(path, NUMERICS).captured[0])


def profile_with(path: Path, bricks: Sequence[Line] = (), steps: int = 4, **more: Any) -> Profile:
    """Of a process with these bricks; a step takes 10 ms."""
    return profile_below(write(path, steps=steps, config=PROFILE, bricks=bricks, **more))


def compared(before: Path, after: Path) -> Baseline:
    with Lines() as lines:
        sides = []
        for path in (before, after):
            (trial,) = captures_below(path, NUMERICS).captured
            sides.append(side_of(lines, trial, profile_of(lines, trial)))
        return against(*sides)


def timed(
    path: Path, step_ms: Sequence[float], own_us: Mapping[str, Sequence[float]] | None = None, **of_step: Any
) -> Path:
    """A run whose steps took so long, with bricks, each inside of no other, that took so long in each step."""
    own_us = own_us or {}
    scale = [milliseconds / 10 for milliseconds in step_ms]
    lines = [
        step_line(step, step_ms=10 * factor, phases_ms={name: ms * factor for name, ms in PHASES_MS.items()}, **of_step)
        for step, factor in enumerate(scale, start=1)
    ]
    spans: list[Line] = []
    for layer, times in own_us.items():
        for step, duration_us in enumerate(times, start=1):
            place = {"step": step, "duration_us": duration_us, "layer": layer, "direction": "forward"}
            spans.append(span("Linear", "brick", len(spans) + 1, **place))
    bricks = [
        brick(layer, calls=len(times), total_us=sum(times), self_us=sum(times)) for layer, times in own_us.items()
    ]
    config = {**PROFILE, "trace": "basic"}
    return write(path, steps=len(step_ms), config=config, step_lines=lines, spans=spans, bricks=bricks)
