"""A chart for the terminal: magnitudes over steps on a log scale, with what is bad marked by a letter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Of lines, in turn, as numbers of the 256 colours of terminals; red is for what is bad.
COLOURS = (39, 214, 76, 170, 228, 51, 141, 250)
#: What marks a bad value, by its kind.
LETTERS = {"nan": "N", "inf": "I", "huge": "H", "oob": "O"}
_RED = 196
# A dtype's limit is in reach of values that are at most a thousandth of it.
_REACH_DECADES = 3.0
# Nothing is seen in a chart of what stays where it is.
_FLAT, _FLAT_ROWS = 0.2, 7
_PER_TICK_COLUMNS, _PER_TICK_ROWS = 12, 3


@dataclass(frozen=True)
class Line:
    """One series.

    Attributes:
        mark: A character at both of its ends; empty where there is one line alone.
        points: (step, largest finite magnitude or None, kind of what is bad or None), in the order of steps.
    """

    mark: str
    points: Sequence[tuple[int, float | None, str | None]]


def chart(
    lines: Sequence[Line], limits: Sequence[tuple[str, float]], width: int, height: int, *, ascii_only: bool
) -> str:
    """Draw the lines, in the colours of COLOURS as ANSI sequences; empty where there is no point.

    A bad value stands where its finite rest is, and at the top where nothing finite is left.

    Args:
        limits: Name and largest number of dtypes. A limit is drawn where some value comes near it.
        width: Columns of a terminal, frame and labels included.
        ascii_only: Whether the terminal has no other characters.
    """
    steps = [step for line in lines for step, _, _ in line.points]
    if not steps:
        return ""
    from plotext import figure, marker

    logs = [math.log10(value) for line in lines for _, value, _ in line.points if value]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    near = [(name, math.log10(most)) for name, most in limits if logs and high >= math.log10(most) - _REACH_DECADES]
    high = max([high, *(most for _, most in near)])
    if high - low < _FLAT:
        low, high, height = low - 0.5, high + 0.5, min(height, _FLAT_ROWS)
    hidden = any(value is None and kind for line in lines for _, value, kind in line.points)
    top = high + (high - low) / height if hidden else high

    figure.clear()
    figure.theme("colorless")
    figure.canvas("default")
    figure.plot_size(width, height)
    if ascii_only:
        figure.axes(False)
    for name, most in near:
        figure.draw(figure.signal([min(steps), max(steps)], [most, most], marker="-").lines())
        figure.draw(figure.text(min(steps), most, f" {name} "))
    for index, line in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        heights = [
            (step, low if value == 0 else math.log10(value), kind)
            for step, value, kind in line.points
            if value is not None
        ]
        symbol = marker("." if ascii_only else "braille", colour)
        if heights:
            figure.draw(figure.signal([x for x, _, _ in heights], [y for _, y, _ in heights], marker=symbol).lines())
            clean = [(x, y) for x, y, kind in heights if kind is None] or [heights[0][:2]]
            for x, y in {clean[0], clean[-1]} if line.mark else ():
                figure.draw(figure.signal([x], [y], marker=marker(line.mark, colour)))
    for line in lines:
        for step, value, kind in line.points:
            if kind is not None:
                y = top if value is None else low if value == 0 else math.log10(value)
                figure.draw(figure.signal([step], [y], marker=marker(LETTERS[kind], (_RED, None, "bold"))))
    figure.ruler("y").lim(low, top).ticks(*_decades(low, high, height))
    x_ticks = _whole(min(steps), max(steps), width)
    figure.ruler("x").ticks(x_ticks, [str(tick) for tick in x_ticks])
    drawn: str = figure.build().string()
    return drawn


def _decades(low: float, high: float, height: int) -> tuple[list[float], list[str]]:
    """Ticks at powers of ten; where there are not two of them, at both ends."""
    between = range(math.ceil(low), math.floor(high) + 1)
    if len(between) < 2:
        return [low, high], [f"{10.0**low:.3g}", f"{10.0**high:.3g}"]
    stride = max(1, -(-len(between) // max(2, height // _PER_TICK_ROWS)))
    ticks = [tick for tick in between if tick % stride == 0]
    return [float(tick) for tick in ticks], [f"1e{tick}" if abs(tick) > 2 else f"{10.0**tick:g}" for tick in ticks]


def _whole(first: int, last: int, width: int) -> list[int]:
    """Steps at the multiples of a round number, as many as have place; the only step where there is one."""
    most = max(2, width // _PER_TICK_COLUMNS)
    stride = next(
        size
        for power in itertools.count()
        for size in (10**power, 2 * 10**power, 5 * 10**power)
        if (last - first) / size <= most
    )
    ticks = list(range(-(-first // stride) * stride, last + 1, stride))
    return ticks or [first]
