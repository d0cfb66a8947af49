"""The course of the loss on a terminal: a chart where there is room, else one row of bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.top_snapshot import Training
from aorta_collectors.report.sparkline import bar
from aorta_collectors.report.wording import number

if TYPE_CHECKING:
    from rich.text import Text

#: Rows from which on there is a chart.
LEAST_ROWS = 5
# Of the 256 colours of terminals.
_LOSS, _EMA, _BEST = 244, 39, 76

Points = Sequence[tuple[int, float]]


def curve(training: Training, width: int, rows: int, *, ascii_only: bool = False) -> Text:
    """The loss, and over it its moving average, with the best step marked, in at most so many rows."""
    from rich.text import Text

    if rows >= LEAST_ROWS and width >= 30:
        return Text.from_ansi(_chart(training, width, rows, ascii_only))
    return Text(_row(training.ema_curve, width, ascii_only), style="cyan")


def _row(points: Points, width: int, ascii_only: bool) -> str:
    values = [value for _, value in points]
    first, last = number(float(f"{values[0]:.4g}")), number(float(f"{values[-1]:.4g}"))
    room = max(1, min(width, 120) - len(first) - len(last) - 2)
    columns = [
        sum(part) / len(part)
        for index in range(min(room, len(values)))
        if (
            part := values[index * len(values) // room : (index + 1) * len(values) // room] or values[index : index + 1]
        )
    ]
    low, high = min(columns), max(columns)
    drawn = [bar((value - low) / (high - low) if high > low else 0.5, ascii_only=ascii_only) for value in columns]
    return f"{first} {''.join(drawn)} {last}"


def _chart(training: Training, width: int, rows: int, ascii_only: bool) -> str:
    from plotext import figure, marker

    figure.clear()
    figure.theme("colorless")
    figure.canvas("default")
    figure.plot_size(min(width, 120), rows)
    if ascii_only:
        figure.axes(False)
    for points, colour in ((training.curve, _LOSS), (training.ema_curve, _EMA)):
        symbol = marker("." if ascii_only else "braille", colour)
        figure.draw(figure.signal([step for step, _ in points], [loss for _, loss in points], marker=symbol).lines())
    if training.best_loss is not None and training.best_loss_step is not None:
        figure.draw(figure.signal([training.best_loss_step], [training.best_loss], marker=marker("*", _BEST)))
    known = [loss for _, loss in training.curve] + ([training.best_loss] if training.best_loss is not None else [])
    low, high = min(known), max(known)
    if low == high:
        low, high = low - 0.5, high + 0.5
    figure.ruler("y").lim(low, high).ticks([low, high], [f"{low:.3g}", f"{high:.3g}"])
    steps = [training.curve[0][0], training.curve[-1][0]]
    figure.ruler("x").ticks(steps, [str(step) for step in steps])
    drawn: str = figure.build().string()
    return drawn.rstrip("\n")
