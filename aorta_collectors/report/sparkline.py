"""A row of characters for the largest magnitude of each step, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.snapshot import Point
from aorta_collectors.report.wording import number

if TYPE_CHECKING:
    from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*#@"
#: Of steps in which something is NaN, Inf or out of range: what is finite beside it says little.
_MARKS = {"nan": "N", "inf": "I", "oob": "o"}


def bar(height: float, *, ascii_only: bool = False) -> str:
    """A character as high as `height`, from 0 to 1."""
    bars = _ASCII_BARS if ascii_only else _BARS
    return bars[round(height * (len(bars) - 1))]


def sparkline(points: Sequence[Point], width: int, *, ascii_only: bool = False) -> Text:
    """The last steps, as many as there is room for, between the magnitudes of the first and of the last of them.

    A step with a NaN is an N, one with an Inf an I, one with values out of range an o. The others are higher the nearer
    they come to the dtype's limit; huge ones are red.
    """
    from rich.text import Text

    ends = max((len(number(point.abs_max)) for point in points), default=0)
    shown = points[-max(1, min(width, 120) - 2 * (ends + 1)) :]
    drawn = [point for point in shown if point.kind not in _MARKS]
    levels = [-point.headroom for point in drawn if point.headroom is not None]
    low, high = min(levels, default=0.0), max(levels, default=0.0)
    first, last = (number(drawn[end].abs_max) if drawn else "-" for end in (0, -1))
    line = Text(f"{first} ")
    for point in shown:
        if point.kind in _MARKS:
            line.append(_MARKS[point.kind], style="bold red")
        elif point.headroom is None:
            line.append(" ")
        else:
            height = (-point.headroom - low) / (high - low) if high > low else 0.5
            line.append(bar(height, ascii_only=ascii_only), style="red" if point.kind else "cyan")
    return line.append(f" {last}")
