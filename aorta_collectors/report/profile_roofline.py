"""Bricks under the roofline: a table, and on a terminal a chart of FLOP/s over intensity, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aorta_collectors.analysis.numerics.roofline import Point, Roofline, points_of
from aorta_collectors.analysis.profile import Profile
from aorta_collectors.report import columns
from aorta_collectors.report.chart import COLOURS
from aorta_collectors.report.profile import heading
from aorta_collectors.report.profile_words import amount, passed, percent, us, width_of
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
_WIDEST, _HEIGHT = 110, 20
# Beyond the outermost point, on either side, as a factor.
_MARGIN = 2.0


def render(profile: Profile, console: Console, most: int | None) -> None:
    """Write the chart, on a terminal, and the table.

    Args:
        most: Bricks that are listed; None for all.
    """
    from rich.text import Text

    heading(profile, console)
    console.print()
    if profile.roofline is None:
        why = "it is measured where bricks are timed" if profile.profiled == "off" else "see below, or its summary"
        console.print(Text(f"no roofline was measured: {why}", style="yellow"))
    points = points_of(profile.bricks if most is None else profile.bricks[:most], profile.roofline)
    if profile.roofline is not None and console.is_terminal:
        drawn = _chart(points, profile.roofline, min(console.width, _WIDEST), columns.ascii_only(console))
        for line in drawn.rstrip("\n").split("\n") if drawn else ():
            console.print(Text.from_ansi(line.rstrip()), no_wrap=True, overflow="crop")
        if drawn:
            console.print(Text("FLOP/s over FLOP a byte; marks are those of the table", style="dim"))
            console.print()
    if not points:
        console.print(Text("no bricks: modules are timed with `profile: deferred` or `profile: immediate`", "yellow"))
        return
    _table(points, console)
    rest = len(profile.bricks) - len(points)
    if rest > 0:
        console.print(Text(f"... {rest} more (--most N, --all)", style="dim"))
    if profile.roofline is not None:
        ridges = [
            f"{text(dtype)} {peak / profile.roofline.bytes_per_s:.3g}"
            for dtype, peak in profile.roofline.flops_per_s.items()
        ]
        said = f"memory bounds what does fewer FLOP a byte than: {', '.join(ridges)}"
        console.print(Text(said, style="dim"), soft_wrap=not console.is_terminal)


def plain(profile: Profile) -> list[dict[str, Any]]:
    """Points as JSON has them; of the brick, its layer and direction."""
    found = []
    for point in points_of(profile.bricks, profile.roofline):
        entry = asdict(point) | {"layer": point.brick.layer, "direction": point.brick.direction}
        del entry["brick"]
        entry |= {"allowed_us": point.brick.allowed_us, "efficiency": point.brick.efficiency}
        found.append({**entry, "bound": point.brick.bound, "self_us_per_call": point.brick.self_us_per_call})
    return found


def _table(points: Sequence[Point], console: Console) -> None:
    from rich.text import Text

    width = width_of(console)
    wide = width >= 100
    headings = ["", "brick", "pass", "self us", "allowed us", "effic.", "FLOP/B", "FLOP/s", "roof", "B/s", "bound"]
    if not wide:
        headings = [name for name in headings if name not in ("allowed us", "roof", "B/s")]
    listed = columns.table(*headings, left=("", "brick", "pass", "bound"), folded=("brick",))
    dots = "..." if columns.ascii_only(console) else "\u2026"
    room = 200 if wide else max(12, width - 62)
    for index, point in enumerate(points):
        brick = point.brick
        intensity = "-" if point.intensity is None else f"{point.intensity:.3g}"
        cells = {
            "self us": us(brick.self_us_per_call),
            "allowed us": us(brick.allowed_us),
            "effic.": percent(brick.efficiency),
            "FLOP/B": intensity,
            "FLOP/s": amount(point.flops_per_s),
            "roof": amount(point.roof_flops_per_s),
            "B/s": amount(point.bytes_per_s),
            "bound": brick.bound or "-",
        }
        mark = _MARKS[index] if index < len(_MARKS) and _is_drawn(point) else ""
        name = Text(columns.tail(brick.layer, room, dots))
        shown = (Text(cells[name]) for name in headings[3:])
        listed.add_row(Text(mark, style=_colour(index)), name, passed(brick.direction), *shown)
    console.print(listed)


def _colour(index: int) -> str:
    return f"color({COLOURS[index % len(COLOURS)]})"


def _is_drawn(point: Point) -> bool:
    return bool(point.intensity and point.flops_per_s)


def _chart(points: Sequence[Point], roofline: Roofline, width: int, ascii_only: bool) -> str:
    """As ANSI sequences; empty where no brick has both coordinates."""
    shown = [(index, point) for index, point in enumerate(points) if _is_drawn(point)]
    if not shown:
        return ""
    from plotext import figure, marker

    peaks = {point.roof_dtype: roofline.flops_per_s[point.roof_dtype] for _, point in shown if point.roof_dtype}
    ridges = [peak / roofline.bytes_per_s for peak in peaks.values()]
    xs = [math.log10(x) for x in (*(point.intensity or 1.0 for _, point in shown), *ridges)]
    low, high = min(xs) - math.log10(_MARGIN), max(xs) + math.log10(_MARGIN)
    tops = [math.log10(peak) for peak in peaks.values()]
    ys = [math.log10(point.flops_per_s or 1.0) for _, point in shown]
    bottom, top = min([*ys, *tops]) - 0.2, max([*ys, *tops]) + 0.2

    figure.clear()
    figure.theme("colorless")
    figure.canvas("default")
    figure.plot_size(width, _HEIGHT)
    if ascii_only:
        figure.axes(False)
    line = "." if ascii_only else "braille"
    slope = math.log10(roofline.bytes_per_s)
    for name, peak in peaks.items():
        ridge, flat = math.log10(peak / roofline.bytes_per_s), math.log10(peak)
        begin = max(low, bottom - slope)
        figure.draw(figure.signal([begin, ridge], [begin + slope, flat], marker=line).lines())
        figure.draw(figure.signal([ridge, high], [flat, flat], marker=line).lines())
        figure.draw(figure.text(ridge, flat + 0.1, f" {text(name)} "))
    for index, point in reversed(shown):  # the longest on top
        if index < len(_MARKS):
            mark = marker(_MARKS[index], COLOURS[index % len(COLOURS)])
            place = [math.log10(point.intensity or 1.0)], [math.log10(point.flops_per_s or 1.0)]
            figure.draw(figure.signal(*place, marker=mark))
    figure.ruler("x").lim(low, high).ticks(*_decades(low, high))
    figure.ruler("y").lim(bottom, top).ticks(*_decades(bottom, top))
    drawn: str = figure.build().string()
    return drawn


def _decades(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks at powers of ten; where there are none, at both ends."""
    between = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)] or [low, high]
    return between, [amount(10.0**power).replace(" ", "") for power in between]
