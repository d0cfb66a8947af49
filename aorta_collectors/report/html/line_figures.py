"""Charts of magnitudes over steps, on a logarithmic scale with the dtype's limit, as plotly's figures."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from aorta_collectors.analysis.dtypes import LIMITS
from aorta_collectors.analysis.report import Detail
from aorta_collectors.analysis.report.charts import Line, Point
from aorta_collectors.report.html.plotting import LABEL, Figure, axis, escaped, layout
from aorta_collectors.report.html.sentences import KINDS, named
from aorta_collectors.report.wording import number, text

_SYMBOLS = {"nan": "x", "inf": "triangle-up", "huge": "diamond", "oob": "square"}
_OTHERS = [f"var(--line-{index})" for index in range(1, 8)]
# Decades between what is on the chart and a limit, within which the axis is stretched up to it.
_REACH = 4
_HEIGHT = 410
# Labels along the logarithmic axis, at most.
_DECADES = 8
# Of a float64, and of its smallest normal number.
_LARGEST_EXPONENT = 307
# Of more steps than these a part is shown at first, around the bad one.
_MOST_STEPS, _BEFORE, _AFTER = 300, 100, 20
# With more points than these a line has no dots.
_MOST_DOTS = 80


def run_up(detail: Detail) -> Figure | None:
    """The magnitude of the tensor where it starts, and of its neighbours."""
    if not detail.run_up:
        return None
    names = [_short(named(line.series)) for line in detail.run_up]
    return _chart(detail.run_up, names, detail, detail.run_up[0].series.dtype)


def over(lines: Sequence[Line], detail: Detail) -> Figure | None:
    """The same tensor in several cells, or on several ranks."""
    if len(lines) < 2:
        return None
    return _chart(lines, [_short(text(line.label or "")) for line in lines], detail, lines[0].series.dtype)


def _chart(lines: Sequence[Line], names: Sequence[str], detail: Detail, dtype: str) -> Figure:
    magnitudes = [point.magnitude for line in lines for point in line.points if point.magnitude]
    low, high = (min(magnitudes), max(magnitudes)) if magnitudes else (1.0, 1.0)
    steps = sorted({point.step for line in lines for point in line.points})
    fault = detail.row.fault
    # Words stand where little is: what grows into a limit has its marks around the step where it does.
    is_early = fault is not None and fault["step"] < (steps[0] + steps[-1]) / 2
    shapes, annotations, top = _limits(high, dtype, detail, "right" if is_early else "left")
    floor = 10.0 ** max(math.floor(math.log10(low)), -_LARGEST_EXPONENT)
    least, most = math.log10(floor), math.log10(top)
    margin = 0.04 * max(1.0, most - least)
    # Where nothing is finite a mark stands at the upper edge, beyond all that is.
    ceiling = 10.0 ** min(most + margin, _LARGEST_EXPONENT)
    data: list[Figure] = []
    for index, (line, name) in enumerate(zip(lines, names, strict=True)):
        color = "var(--line-0)" if index == 0 else _OTHERS[(index - 1) % len(_OTHERS)]
        points = line.points
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= _MOST_DOTS else "lines",
                "name": escaped(name),
                "legendgroup": str(index),
                "x": [point.step for point in points],
                "y": [_height(point, floor) for point in points],
                "text": [_hover(line, point) for point in points],
                "line": {"color": color, "width": 3 if index == 0 else 1.4},
                "marker": {"size": 5 if index == 0 else 3},
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
        bad = [(point, point.kind) for point in points if point.kind is not None]
        if bad:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": escaped(name),
                    "legendgroup": str(index),
                    "showlegend": False,
                    "x": [point.step for point, _ in bad],
                    "y": [_height(point, floor) or ceiling for point, _ in bad],
                    "text": [_hover(line, point) for point, _ in bad],
                    "marker": {
                        "color": [f"var(--severity-{kind})" for _, kind in bad],
                        "symbol": [_SYMBOLS[kind] for _, kind in bad],
                        "size": 10 if index == 0 else 7,
                        "line": {"width": 1, "color": "var(--page)"},
                    },
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    across = axis(None)
    if fault is not None:
        shapes.append(_line("x", fault["step"], "var(--severity-nan)", "dot"))
        if len(steps) > _MOST_STEPS:
            place = bisect.bisect_left(steps, fault["step"])
            across["range"] = [steps[max(0, place - _BEFORE)], steps[min(len(steps) - 1, place + _AFTER)]]
    return {
        "data": data,
        "layout": {
            **layout(_HEIGHT),
            "xaxis": across,
            "yaxis": {
                **axis("largest finite magnitude"),
                "type": "log",
                "exponentformat": "power",
                "dtick": max(1, math.ceil((most - least) / _DECADES)),
                "range": [least - margin, most + 2 * margin],
            },
            "shapes": shapes,
            "annotations": annotations,
            "showlegend": True,
            "legend": {"orientation": "h", "yanchor": "top", "y": -0.11, "x": 0},
            "hovermode": "closest",
        },
    }


def _limits(high: float, dtype: str, detail: Detail, side: str) -> tuple[list[Figure], list[Figure], float]:
    """Lines for the dtype's largest number and the threshold, as far as they are near; the largest value to show."""
    shapes, annotations, top = [], [], high
    known = LIMITS.get(dtype)
    limits: list[tuple[str, float]] = []
    if known is not None:
        limits.append((f"{dtype.removeprefix('torch.')} ends at", known.max))
    if detail.huge is not None and (known is None or detail.huge < known.max):
        limits.append(("huge beyond", detail.huge))
    beyond = []
    for words, value in limits:
        if value > high * 10**_REACH:
            beyond.append(f"{words} {number(value)}")
            continue
        top = max(top, value)
        shapes.append(_line("y", value, "var(--limit)", "dash"))
        annotations.append(_note(f"{words} {number(value)}", side, y=math.log10(value), yref="y", yanchor="top"))
    if beyond:
        annotations.append(_note(f"above this chart: {', '.join(beyond)}", "left", y=1, yref="paper", yanchor="bottom"))
    return shapes, annotations, top


def _line(axis: str, at: float, color: str, dash: str) -> Figure:
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", **ends, "line": {"color": color, "width": 1, "dash": dash}, "layer": "below"}


def _note(words: str, side: str, **where: Any) -> Figure:
    place = {"x": float(side == "right"), "xref": "paper", "xanchor": side, "showarrow": False}
    return {"text": escaped(words), "font": {"size": 11}, **place, **where}


def _hover(line: Line, point: Point) -> str:
    head = f"<b>{escaped(text(line.label))}</b><br>" if line.label is not None else ""
    name = escaped(named(line.series))
    words = [f"{head}{name}", f"step {point.step}"]
    if point.kind:
        counts = zip(("NaN", "Inf", "huge"), point.bad, strict=True)
        told = ", ".join(f"{count} {what}" for what, count in counts if count)
        words.append(f"<b>{told or KINDS[point.kind]}</b> of {point.numel}")
    words.append(
        f"largest finite magnitude {number(point.magnitude)}" if point.magnitude is not None else "nothing finite"
    )
    return "<br>".join(words)


def _height(point: Point, floor: float) -> float | None:
    """A zero stands at the lower edge: a logarithm has no place for it."""
    return None if point.magnitude is None else max(point.magnitude, floor)


def _short(name: str) -> str:
    return name if len(name) <= LABEL else f"{name[: LABEL // 3]}...{name[-(LABEL - LABEL // 3) :]}"
