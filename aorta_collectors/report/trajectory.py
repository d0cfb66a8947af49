"""Trajectories on a terminal: a chart, what its lines are, and the steps around the first bad one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aorta_collectors.analysis.captures import trial_index, trial_place
from aorta_collectors.analysis.dtypes import LIMITS
from aorta_collectors.analysis.series import Point, Series, Trajectory
from aorta_collectors.report import columns
from aorta_collectors.report.chart import COLOURS, LETTERS, Line, chart
from aorta_collectors.report.wording import number, tensor, text

if TYPE_CHECKING:
    from rich.console import Console

_WIDEST = 110
_HEIGHT, _HEIGHT_NARROW = 16, 11
_LISTED = 4
# Growth in one step that the eye shall rest on.
_FAST = 10.0


def points(width: int) -> int:
    """How many a chart on a terminal of that width has a column for."""
    return max(10, min(width, _WIDEST) - 9)


def render(found: Trajectory, console: Console, every_table: bool) -> None:
    """Write the chart, a line for each series, and the table of the first, or of all."""
    from rich.text import Text

    varied, common = _places(found.series)
    several = f"{len(found.layers)} layers" if "layer" in varied[0] else ""
    title = ", ".join(part for part in (several, common) if part)
    console.print(Text(f"{title}: steps {found.first_step} to {found.last_step}", style="bold"))
    width = min(console.width, _WIDEST)
    narrow = width < columns.NARROW
    drawn = chart(
        [_line(series, _mark(index, found)) for index, series in enumerate(found.series)],
        [(f"{columns.dtype(name)} max", LIMITS[name].max) for name in _dtypes(found.series)],
        width,
        _HEIGHT_NARROW if narrow else _HEIGHT,
        ascii_only=columns.ascii_only(console),
    )
    for line in drawn.rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line.rstrip()), no_wrap=True, overflow="crop")
    kinds = dict.fromkeys(point.of.kind for series in found.series for point in series.points if point.of.kind)
    merged = f"; a point is the worst of {found.steps_per_point} steps" if found.steps_per_point > 1 else ""
    if kinds:
        marks = ", ".join(f"{LETTERS[kind]} {kind}" for kind in LETTERS if kind in kinds)
        console.print(Text(f"{marks}: where the finite rest is, at the top if none is left{merged}", style="dim"))
    elif merged:
        console.print(Text(merged.removeprefix("; "), style="dim"))
    console.print()
    _legend(found, varied, console)
    _notes(found, console)
    for index, series in enumerate(found.series if every_table else found.series[:1]):
        console.print()
        _table(series, _mark(index, found), varied[index], narrow, console)
    if len(found.series) > 1 and not every_table:
        console.print(Text("--all and --last N print such a table of each", style="dim"))


def _mark(index: int, found: Trajectory) -> str:
    return "123456789abcdefghijklmnopqrstuvwxyz"[index % 35] if len(found.series) > 1 else ""


def _line(series: Series, mark: str) -> Line:
    return Line(
        mark,
        [
            (point.step if point.bad_step is None else point.bad_step, point.of.abs_max, point.of.kind)
            for point in series.points
        ],
    )


def _dtypes(series: Sequence[Series]) -> list[str]:
    return sorted({entry.dtype for entry in series if entry.dtype and entry.dtype in LIMITS})


def _places(series: Sequence[Series]) -> tuple[list[dict[str, str]], str]:
    """By what each series differs from the others, and what all have in common."""
    said = [_place(entry) for entry in series]
    same = [key for key in said[0] if len({place[key] for place in said}) == 1]
    common = ", ".join(
        said[0][key]
        for key in ("layer", "tensor", "at", "call", "run", "cell", "trial", "rank")
        if key in same and said[0][key]
    )
    return [{key: value for key, value in place.items() if key not in same} for place in said], common


def _place(series: Series) -> dict[str, str]:
    found = {"role": series.role, "param_name": series.param_name, "tensor_path": series.tensor_path}
    stem = f"rank{series.rank}"
    return {
        "run": "" if series.run == "." else text(series.run),
        "cell": "" if series.cell == "-" else text(series.cell),
        "trial": "" if series.trial == "-" else f"trial {trial_index(series.trial)}",
        "rank": f"rank {series.rank}" + (f" ({text(series.process)})" if series.process != stem else ""),
        "layer": text(series.layer),
        "tensor": tensor(found) + (f" {columns.dtype(series.dtype)}" if series.dtype else ""),
        "at": text(series.place),
        "call": f"call {series.invocation}" if series.invocation else "",
    }


def _legend(found: Trajectory, varied: Sequence[Mapping[str, str]], console: Console) -> None:
    """What each line is, and where it goes bad."""
    from rich.text import Text

    keys = list(varied[0])
    narrow = console.width < columns.NARROW
    left = ("", "first bad", *(() if narrow else keys))
    listed = columns.table("", "first bad", *left[2:], "largest", "bits", left=left)
    dots = "..." if columns.ascii_only(console) else "\u2026"
    room = max(10, (console.width - 34) // max(1, len(keys)))
    for index, (series, place) in enumerate(zip(found.series, varied, strict=True)):
        bad = Text("none", style="green")
        if series.first_bad is not None:
            bad = Text(f"step {series.first_bad} {series.first_kind}", style="bold red")
        colour = f"color({COLOURS[index % len(COLOURS)]})"
        least = min((point.of.headroom for point in series.points if point.of.headroom is not None), default=None)
        names = [columns.tail(place[key], room, dots) for key in left[2:]]
        mark = Text(_mark(index, found), style=colour)
        listed.add_row(mark, bad, *names, number(series.peak), columns.bits(least))
    console.print(listed)
    if narrow and len(found.series) > 1:
        for index, place in enumerate(varied):
            named = ", ".join(value for value in place.values() if value)
            console.print(Text(f"{_mark(index, found)} {named}", style=f"color({COLOURS[index % len(COLOURS)]})"))


def _notes(found: Trajectory, console: Console) -> None:
    """What is not in the chart."""
    from rich.text import Text

    if found.more:
        console.print(Text(f"{found.more} more series, less bad or smaller: --series N shows more", style="dim"))
    first = min((series.first_bad for series in found.series if series.first_bad is not None), default=None)
    for entry in found.elsewhere[:_LISTED]:
        earlier = first is None or entry.first_bad < first
        console.print(
            Text(
                f"bad {'before that' if earlier and first is not None else 'too'}: {text(entry.layer)} "
                f"{text(entry.role)} from step {entry.first_bad} (--role {text(entry.role)})",
                style="red" if earlier else "dim",
            )
        )
    if len(found.elsewhere) > _LISTED:
        console.print(Text(f"and {len(found.elsewhere) - _LISTED} more in other roles", style="dim"))
    if found.without:
        names = [text(trial_place(*key)) for key in found.without[:_LISTED]]
        more = f" and {len(found.without) - _LISTED} more" if len(found.without) > _LISTED else ""
        console.print(Text(f"no record of it: {'; '.join(names)}{more}", style="dim"))


def _table(series: Series, mark: str, place: Mapping[str, str], narrow: bool, console: Console) -> None:
    """The steps of one series."""
    from rich.text import Text

    named = ", ".join(value for value in place.values() if value)
    rest = series.steps - len(series.rows)
    left = f" ({rest} steps left out: --all)" if rest else ""
    sizes = {point.of.numel for point in series.rows}
    elements = f", {sizes.pop()} elements" if len(sizes) == 1 else ""
    console.print(Text(f"{f'{mark} ' if mark else ''}{named or 'steps'}{elements}{left}", style="bold"))
    headings = ["step", "abs max", "growth"] + ([] if narrow else ["bits", "min", "max"])
    any_bad = any(point.of.kind for point in series.rows)
    rows = columns.table(*headings, *(["bad"] if any_bad else []), left=("bad",))
    for point in series.rows:
        style = "red" if point.of.kind else None
        if point.step == series.first_bad:
            style = "bold red"
        rows.add_row(*_cells(point, narrow), *([columns.counts(point.of)] if any_bad else []), style=style)
    console.print(rows)


def _cells(point: Point, narrow: bool) -> list[Any]:
    from rich.text import Text

    fast = point.growth is not None and point.growth >= _FAST
    rest = [] if narrow else [columns.bits(point.of.headroom), number(point.of.low), number(point.of.high)]
    return [
        str(point.step),
        number(point.of.abs_max),
        Text(columns.factor(point.growth), style="bold yellow" if fast else ""),
        *rest,
    ]
