"""The heat map: all tensors of a trial in execution order, over the steps, with what is bad in colours of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from aorta_collectors.analysis.magnitude import KINDS
from aorta_collectors.analysis.report import Detail
from aorta_collectors.analysis.report.charts import Heat
from aorta_collectors.analysis.report.points import Series
from aorta_collectors.report.html.plotting import LABEL, Figure, axis, escaped, layout
from aorta_collectors.report.html.sentences import named

# Of layers, and of steps: fewer where these have many digits.
_MOST_TICKS, _MOST_STEP_TICKS, _MOST_LONG_TICKS, _LONG = 26, 12, 6, 4
_ROW, _LEAST, _MOST = 16, 240, 620
# Stands for the logarithm of 0.
_ZERO = -330.0


def heat_map(detail: Detail) -> Figure | None:
    """Tensors x steps of layer_numerics."""
    found = detail.heat
    if found is None:
        return None
    labels = [_row_label(*row) for row in found.rows]
    return heat_figure(
        labels,
        found.columns,
        found.magnitudes,
        found.bad,
        found.ranks,
        "largest finite magnitude",
        rows_named=_row_of(found, detail.focus),
        annotations=_starts_here(detail, found),
    )


def heat_figure(
    labels: Sequence[str],
    columns: Sequence[tuple[int, int]],
    values: Sequence[Sequence[float | None]],
    bad: Sequence[Sequence[int]],
    ranks: int,
    quantity: str,
    *,
    rows_named: Set[int] = frozenset(),
    annotations: Sequence[Figure] = (),
) -> Figure:
    """Rows x steps. The script lays the bad cells over it (`bad`), and writes what one points at.

    Args:
        labels: Of the rows, from the top.
        columns: Steps of each, the first and the last.
        values: By row and column; None where nothing is finite.
        bad: Row, column, severity, NaN, Inf and huge elements, elements read, and rank, of each bad cell.
        ranks: How many ranks are in it.
        quantity: What the values are.
        rows_named: Rows that have their name beside them in any case.
    """
    steps = [str(first) if first == last else f"{first} to {last}" for first, last in columns]
    logs = [[None if value is None else _log(value) for value in row] for row in values]
    known = [value for row in logs for value in row if value is not None and value > _ZERO]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    every = max(1, math.ceil(len(labels) / _MOST_TICKS))
    spaced = (row for row in range(0, len(labels), every) if all(abs(row - it) >= every for it in rows_named))
    ticks = sorted({*spaced, *rows_named})
    most_ticks = _MOST_STEP_TICKS if len(str(columns[-1][0])) < _LONG else _MOST_LONG_TICKS
    step_ticks = list(range(0, len(steps), max(1, math.ceil(len(steps) / most_ticks))))
    around: Figure = {
        **layout(min(_MOST, max(_LEAST, _ROW * len(labels) + 90))),
        "xaxis": {
            **axis("step"),
            "range": [-0.5, len(steps) - 0.5],
            "tickvals": step_ticks,
            "ticktext": [str(columns[index][0]) for index in step_ticks],
            "tickangle": 0,
            "showgrid": False,
        },
        "yaxis": {
            **axis(None),
            "range": [len(labels) - 0.5, -0.5],
            "tickvals": ticks,
            "ticktext": [_tail(labels[index]) for index in ticks],
            "showgrid": False,
            "tickfont": {"size": 10.5},
            "automargin": True,
        },
        "annotations": list(annotations),
    }
    scale = {"zmin": low, "zmax": max(high, low + 1), "colorscale": [[i / 4, f"var(--heat-{i})"] for i in range(5)]}
    ticks_of_scale = _decades(low, max(high, low + 1))
    bar = {
        "title": {"text": quantity.replace("finite ", ""), "side": "right"},
        "thickness": 10,
        "outlinewidth": 0,
        "tickvals": ticks_of_scale,
        "ticktext": [f"1e{value}" for value in ticks_of_scale],
    }
    severities = [f"var(--severity-{name})" for name in KINDS[1:]]
    # Four colours for the severities from 1 to 4, each over a quarter of the scale.
    discrete = [[edge / 4, color] for index, color in enumerate(severities) for edge in (index, index + 1)]
    return {
        "data": [
            {"type": "heatmap", "z": logs, **scale, "colorbar": bar, "hovertemplate": "%{text}<extra></extra>"},
            {
                "type": "heatmap",
                "zmin": 0.5,
                "zmax": 4.5,
                "colorscale": discrete,
                "showscale": False,
                "hovertemplate": "%{text}<extra></extra>",
            },
        ],
        "layout": around,
        "rows": [escaped(label) for label in labels],
        "columns": steps,
        "bad": [list(cell) for cell in bad],
        "ranks": ranks,
        "quantity": quantity,
    }


def _starts_here(detail: Detail, found: Heat) -> list[Figure]:
    fault = detail.row.fault
    rows = _row_of(found, detail.focus)
    if fault is None or not rows or not detail.at_fault:
        return []
    columns = [i for i, (first, last) in enumerate(found.columns) if first <= fault["step"] <= last]
    if not columns:
        return []
    right = columns[0] < len(found.columns) / 2
    mark = {"color": "var(--ink)", "arrowcolor": "var(--ink)", "arrowhead": 2, "arrowwidth": 1.5}
    return [
        {
            "x": columns[0],
            "y": min(rows),
            "text": "starts here",
            "ax": 60 if right else -60,
            "ay": -34 if min(rows) > len(found.rows) / 4 else 34,
            "showarrow": True,
            "bgcolor": "var(--page)",
            "borderpad": 3,
            "font": {"size": 12},
            **{key: value for key, value in mark.items() if key != "color"},
        }
    ]


def _row_of(found: Heat, focus: Series | None) -> set[int]:
    if focus is None:
        return set()
    return {i for i, (first, last, _) in enumerate(found.rows) if first.number <= focus.number <= last.number}


def _row_label(first: Series, last: Series, count: int) -> str:
    return named(first) if count == 1 else f"{named(first)} to {named(last)}, {count} tensors"


def _log(value: float) -> float:
    return round(math.log10(value), 4) if value > 0 else _ZERO


def _decades(low: float, high: float) -> list[int]:
    every = max(1, math.ceil((high - low) / 8))
    return list(range(math.ceil(low), math.floor(high) + 1, every))


def _tail(name: str) -> str:
    """The end of a path says more than its beginning."""
    return escaped(name if len(name) <= LABEL else f"...{name[-LABEL:]}")
