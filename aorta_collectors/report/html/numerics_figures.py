"""Charts of where the time went: phases, bricks, what they reach of the roofline, and what escalations found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.analysis.numerics.escalations import CATEGORIES, Escalated
from aorta_collectors.analysis.numerics.phases import STEP
from aorta_collectors.analysis.numerics.roofline import Point, Roofline
from aorta_collectors.analysis.profile import Profile
from aorta_collectors.report.html.plotting import Figure, axis, escaped, layout
from aorta_collectors.report.profile_words import amount, duration, passed, percent, ratio
from aorta_collectors.report.wording import text

#: Bricks, and escalated bricks, that have a bar; points of a roofline.
MOST_BARS, MOST_ESCALATED, MOST_POINTS = 25, 15, 300
_LABEL = 30
# Part of the time that makes a point large, if none has more.
_LARGE = 0.05
_BAR, _AROUND = 20, 92
# For what stands behind the longest bar.
_ROOM = 1.15
_FORWARD, _BACKWARD = "var(--line-0)", "var(--line-4)"
_OF_BOUND = {"compute": "var(--line-0)", "memory": "var(--line-2)", "launch": "var(--line-4)", "host": "var(--line-3)"}
_OF_CATEGORY = dict(zip(CATEGORIES, (f"var(--line-{index})" for index in (2, 3, 0, 6, 4, 5, 1)), strict=True))


def phases(profile: Profile) -> Figure | None:
    """The phases of a step in their order, with their parts of it."""
    found = [phase for phase in profile.phases if phase.name != STEP and phase.mean_ms is not None]
    if not found:
        return None
    hover = [
        f"{escaped(text(phase.name))}<br>{percent(phase.share)} of the steps' time<br>mean {_ms(phase.mean_ms)}, "
        f"p50 {_ms(phase.p50_ms)}, p95 {_ms(phase.p95_ms)}, p99 {_ms(phase.p99_ms)}"
        for phase in found
    ]
    bars = _bars([text(phase.name) for phase in found], [phase.mean_ms for phase in found], hover, _FORWARD)
    bars["text"] = [percent(phase.share) for phase in found]
    bars |= {"textposition": "outside", "cliponaxis": False, "textfont": {"size": 11}}
    figure = _across([bars], len(found), "ms of a step, mean")
    figure["layout"]["xaxis"] |= {"range": [0, _ROOM * max(phase.mean_ms or 0.0 for phase in found)]}
    return figure


def bricks(profile: Profile) -> Figure | None:
    """The modules with the longest time of their own, forward and backward beside each other."""
    by_layer: dict[str, dict[str, Brick]] = {}
    for brick in profile.bricks:
        by_layer.setdefault(brick.layer, {})[brick.direction] = brick
    layers = sorted(by_layer, key=lambda layer: -sum(brick.self_us for brick in by_layer[layer].values()))[:MOST_BARS]
    if not layers:
        return None
    data = []
    for direction, color in (("forward", _FORWARD), ("backward", _BACKWARD)):
        there = [layer for layer in layers if direction in by_layer[layer]]
        found = [by_layer[layer][direction] for layer in there]
        per_step = [brick.self_ms_per_step if brick.self_ms_per_step is not None else 0.0 for brick in found]
        places = [layers.index(layer) for layer in there]
        bars = _bars(places, per_step, list(map(_of_brick, found)), color)
        data.append({**bars, "name": direction})
    figure = _across(data, len(layers), "own ms of a step")
    figure["layout"] |= {"barmode": "stack", "showlegend": True, "legend": _LEGEND}
    figure["layout"]["yaxis"] |= _named(layers)
    return figure


def _of_brick(brick: Brick) -> str:
    lines = [
        f"<b>{escaped(text(brick.layer))}</b> {passed(brick.direction)}",
        escaped(text(brick.module_type)),
        f"{percent(brick.share)} of the steps' time without its parts",
        f"a call: mean {duration(brick.mean_us)}, p99 {duration(brick.p99_us)}, CV {ratio(brick.cv)}",
        f"efficiency {percent(brick.efficiency)}, bound by {brick.bound or 'nothing known'}",
    ]
    return "<br>".join(lines)


def roofline(points: Sequence[Point], roof: Roofline | None) -> Figure | None:
    """Bricks by their intensity and what they reach, on logarithmic scales, under the roof of each dtype."""
    shown = sorted(points, key=lambda point: -point.brick.self_us)[:MOST_POINTS]
    if roof is None or not shown:
        return None
    intensities = [point.intensity for point in shown if point.intensity]
    dtypes = list(dict.fromkeys(point.roof_dtype for point in shown if point.roof_dtype))
    ridges = [roof.flops_per_s[dtype] / roof.bytes_per_s for dtype in dtypes]
    low = 10.0 ** math.floor(math.log10(min([*intensities, *ridges])) - 0.2)
    high = 10.0 ** math.ceil(math.log10(max([*intensities, *ridges])) + 0.5)
    data: list[Figure] = []
    annotations: list[Figure] = []
    for index, (dtype, ridge) in enumerate(zip(dtypes, ridges, strict=True)):
        peak = roof.flops_per_s[dtype]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [low, ridge, high],
                "y": [low * roof.bytes_per_s, peak, peak],
                "line": {"color": "var(--limit)", "width": 2, "dash": "dot" if index else "solid"},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
        said = f"{escaped(text(dtype))} {amount(peak, 'FLOP/s')}, ridge at {ridge:.3g} FLOP/B"
        annotations.append(
            {"x": math.log10(high), "y": math.log10(peak), "text": said, "showarrow": False, "xanchor": "right"}
            | {"yanchor": "bottom", "font": {"size": 11, "color": "var(--limit)"}}
        )
    most = max(*(point.brick.share or 0.0 for point in shown), _LARGE)
    for bound, color in (*_OF_BOUND.items(), (None, "var(--line-1)")):
        of_bound = [point for point in shown if point.brick.bound == bound]
        for direction, symbol in (("forward", "circle"), ("backward", "diamond")):
            found = [point for point in of_bound if point.brick.direction == direction]
            if found:
                data.append(_cloud(found, f"{bound or 'bound not known'}, {direction}", color, symbol, most))
    tallest = max(roof.flops_per_s[dtype] for dtype in dtypes)
    lowest = min(point.flops_per_s or tallest for point in shown)
    span = [math.log10(lowest) - 0.3, math.log10(tallest) + 0.5]
    power = {"type": "log", "exponentformat": "SI", "dtick": 1}
    return {
        "data": data,
        "layout": {
            **layout(440),
            "xaxis": {
                **axis("operations a byte (FLOP/B)"),
                **power,
                "exponentformat": "power",
                "range": [math.log10(low), math.log10(high)],
            },
            "yaxis": {**axis("FLOP/s"), **power, "range": span},
            "annotations": annotations,
            "showlegend": True,
            "legend": {"orientation": "h", "yanchor": "top", "y": -0.16, "x": 0},
            "hovermode": "closest",
        },
    }


def _cloud(points: Sequence[Point], name: str, color: str, symbol: str, most: float) -> Figure:
    said = [
        f"{_of_brick(point.brick)}<br>{amount(point.flops_per_s, 'FLOP/s')} of "
        f"{amount(point.roof_flops_per_s, 'FLOP/s')} at {point.intensity:.3g} FLOP/B"
        for point in points
    ]
    # The area of a point is its part of the time.
    sizes = [7 + 17 * math.sqrt((point.brick.share or 0.0) / most) for point in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [point.intensity for point in points],
        "y": [point.flops_per_s for point in points],
        "text": said,
        "marker": {
            "color": color,
            "symbol": symbol,
            "size": sizes,
            "opacity": 0.75,
            "line": {"width": 1, "color": "var(--page)"},
        },
        "hovertemplate": "%{text}<extra></extra>",
    }


def breakdowns(escalated: Sequence[Escalated]) -> Figure | None:
    """Where the process's time went in the looks at each brick, as parts of the whole."""
    shown = [each for each in escalated if each.shares][:MOST_ESCALATED]
    if not shown:
        return None
    labels = [f"{text(each.layer)} {passed(each.direction)}" for each in shown]
    data = []
    for category in CATEGORIES:
        shares = [each.shares.get(category, 0.0) for each in shown]
        hover = [
            f"{escaped(label)}<br>{category}: {percent(share)}<br>"
            f"{each.looks} looks, by {escaped(', '.join(each.sources))}"
            for label, share, each in zip(labels, shares, shown, strict=True)
        ]
        bars = _bars(list(range(len(shown))), [100 * share for share in shares], hover, _OF_CATEGORY[category])
        data.append({**bars, "name": category})
    figure = _across(data, len(shown), "percent of all threads' time")
    figure["layout"] |= {"barmode": "stack", "showlegend": True, "legend": _LEGEND}
    figure["layout"]["xaxis"] |= {"range": [0, 100]}
    figure["layout"]["yaxis"] |= _named(labels)
    return figure


_LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"}


def _bars(places: Sequence[object], values: Sequence[float | None], hover: Sequence[str], color: str) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(places),
        "x": list(values),
        "hovertext": list(hover),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": color},
    }


def _across(data: Sequence[Figure], rows: int, title: str) -> Figure:
    down = {**axis(None), "autorange": "reversed", "automargin": True, "showgrid": False, "ticks": ""}
    return {
        "data": list(data),
        "layout": {
            **layout(max(200, _BAR * rows + _AROUND)),
            "xaxis": {**axis(title), "rangemode": "tozero"},
            "yaxis": {**down, "tickfont": {"size": 11}},
            "bargap": 0.25,
            "showlegend": False,
        },
    }


def _named(labels: Sequence[str]) -> Figure:
    """Ticks: places are numbers, so that two names that end alike stay two bars."""
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": [escaped(label if len(label) <= _LABEL else f"...{label[3 - _LABEL :]}") for label in labels],
    }


def _ms(value: float | None) -> str:
    return duration(None if value is None else 1000 * value)
