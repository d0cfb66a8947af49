"""Stacks of bricks for other viewers: folded lines, and the JSON of speedscope.

Folded stacks are those of Brendan Gregg's flamegraph.pl, which inferno and other tools read too: frames with ; between
them, a space, and a whole number, here microseconds of self time. Speedscope's format is described by the schema at
https://www.speedscope.app/file-format-schema.json; a profile of the type "sampled" has a weight for each stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aorta_collectors.analysis.profile_stacks import Frame
from aorta_collectors.printable import printable

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def folded(roots: Sequence[Frame]) -> Iterator[str]:
    """A line for each stack with a microsecond of its own at least, with its end."""
    for root in roots:
        for stack in root.stacks():
            own = round(stack[-1].own_us)
            if own > 0:
                yield f"{';'.join(_one(frame) for frame in stack)} {own}\n"


def _one(frame: Frame) -> str:
    """A name without what separates frames."""
    return printable(frame.name).replace(";", ":") or "-"


def speedscope(roots: Sequence[Frame], name: str) -> dict[str, Any]:
    """The document: each root is a profile of its own."""
    numbers: dict[str, int] = {}
    profiles = []
    for root in roots:
        samples, weights = [], []
        for stack in root.stacks():
            if stack[-1].own_us > 0:
                # By full path: layers of one name in two places are two frames.
                paths = [frame.brick.layer if frame.brick is not None else frame.name for frame in stack]
                samples.append([numbers.setdefault(path, len(numbers)) for path in paths])
                weights.append(stack[-1].own_us)
        profiles.append(
            {
                "type": "sampled",
                "name": root.name,
                "unit": "microseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    return {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": "aorta-collectors",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": path} for path in numbers]},
        "profiles": profiles,
    }
