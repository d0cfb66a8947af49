"""The layers of one step on a terminal, in execution order: where magnitude jumps, where bad begins, how it spreads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.captures import trial_place
from aorta_collectors.analysis.layers import Layers, Row, Spread, Tensor
from aorta_collectors.report import columns
from aorta_collectors.report.chart import LETTERS
from aorta_collectors.report.wording import number, tensor, text

if TYPE_CHECKING:
    from rich.console import Console

#: Growth from one layer to the next that is marked.
JUMP = 100.0
# Of more rows, those around the beginning of what is bad, the biggest jumps and both ends are shown.
_MOST = 30
_BEFORE, _AFTER, _JUMPS, _END = 8, 12, 4, 3
_WIDEST = 110
# Growth that is no jump worth a word.
_GROWN = 2.0


def render(found: Layers, console: Console, asked: Sequence[str], every: bool) -> None:
    """Write where it is, how it spreads, and a table for each role.

    Args:
        asked: Roles that were asked for; where none was, what the forward shows, and where it begins.
        every: All rows of all roles.
    """
    from rich.text import Text

    rank = f"rank {found.rank} of {found.ranks}" if found.ranks > 1 else ""
    of_process = ", ".join(filter(None, (text(trial_place(found.run, found.cell, found.trial)), rank)))
    console.print(Text(f"{of_process}{': ' if of_process else ''}step {found.step}", style="bold"))
    first = found.first_bad
    if first is None:
        console.print(Text(f"nothing is bad in steps {found.first_step} to {found.last_step}", style="green"))
    else:
        console.print(Text(f"bad begins in step {first.step}: {_named(first.tensor)}, {first.kind}", style="bold red"))
    _others(found, console)
    console.print()
    _spreads(found, console)
    shown = [
        spread
        for index, spread in enumerate(found.by_role)
        if every or asked or index == 0 or (first is not None and spread.role == first.tensor.role)
    ]
    for spread in sorted(shown, key=lambda spread: not any(row.begins for row in spread.rows)):
        if spread.rows:
            console.print()
            _table(spread, console, every)
    rest = [text(spread.role) for spread in found.by_role if spread not in shown and spread.rows]
    if rest:
        console.print(Text(f"not shown: {', '.join(rest)} (--role, or --all)", style="dim"))


def _named(of: Tensor) -> str:
    shown = {"role": of.role, "param_name": of.param_name, "tensor_path": of.tensor_path}
    return " ".join(part for part in (text(of.layer), tensor(shown), text(of.place)) if part)


def _others(found: Layers, console: Console) -> None:
    """What else there is to look at, and how to come there."""
    from rich.text import Text

    why = "goes bad first" if found.first_bad is not None else "has the largest magnitude"
    if found.ranks > 1:
        console.print(Text(f"of {found.ranks} ranks the one that {why}; --rank N shows another", style="dim"))
    if found.other_trials:
        trials = "trial" if found.other_trials == 1 else "trials"
        some = f"{found.others_bad} of them bad somewhere" if found.others_bad else "nothing bad there"
        console.print(Text(f"{found.other_trials} more {trials}, {some}; --cell and --trial show others", style="dim"))
    if found.absent:
        console.print(Text(f"{found.absent} tensors have no record of this step", style="dim"))


def _spreads(found: Layers, console: Console) -> None:
    """How many tensors of each role are bad, and since when."""
    from rich.text import Text

    listed = columns.table("role", "bad", "first bad", left=("role",))
    for spread in found.by_role:
        since = "-" if spread.first_bad is None else f"step {spread.first_bad}"
        style = "red" if spread.bad else None
        listed.add_row(Text(text(spread.role)), f"{spread.bad} of {spread.tensors}", since, style=style)
    console.print(listed)


def _table(spread: Spread, console: Console, every: bool) -> None:
    from rich.text import Text

    rows = spread.rows
    any_bad = any(row.of.kind or row.bad_since is not None for row in rows)
    width = min(console.width, _WIDEST)
    bar = 0 if width < columns.NARROW else 8 if width < 90 else 14
    tensors = {(row.tensor.param_name, row.tensor.tensor_path) for row in rows}
    same = len(tensors) == 1
    (parameter, path) = next(iter(tensors)) if same else ("", "")
    title = tensor({"role": spread.role, "param_name": parameter, "tensor_path": path})
    console.print(Text(f"{title} in execution order", style="bold"))
    headings = ["", "layer"] + (["magnitude"] if bar else []) + ["abs max"]
    headings += ["growth"] if bar or not any_bad else []
    headings += ["bits"] if bar else []
    headings += ["bad"] if any_bad else []
    headings += ["since"] if any_bad and bar else []
    left = ("", "layer", "magnitude", "bad")
    names = [_short(row.tensor, same) for row in rows]
    dots, block = ("...", "#") if columns.ascii_only(console) else ("\u2026", "\u2588")
    low, per_decade = _scale(rows, bar)
    cells = [[*_bar(row, bar, low, per_decade, block), *_cells(row, bool(bar), any_bad)] for row in rows]
    fixed = 1 + sum(
        2 + max(len(heading), *(len(row[index]) for row in cells)) for index, heading in enumerate(headings[2:])
    )
    room = max(12, console.width - fixed - 2)
    listed = columns.table(*headings, left=left)
    kept = range(len(rows)) if every else _kept(rows)
    before = -1
    for index in kept:
        if index > before + 1:
            listed.add_row("", Text(_gap(rows[before + 1 : index]), style="dim"))
        row = rows[index]
        style = "bold red" if row.begins else "red" if row.of.kind else None
        jump = row.growth is not None and row.growth >= JUMP
        mark = Text(">" if row.begins else "^" if jump else "", style="bold red" if row.begins else "bold yellow")
        drawn = [Text(cell, style="bold yellow" if jump and cell.startswith("x") else "") for cell in cells[index]]
        listed.add_row(mark, Text(columns.tail(names[index], room, dots)), *drawn, style=style)
        before = index
    if before + 1 < len(rows):
        listed.add_row("", Text(_gap(rows[before + 1 :]), style="dim"))
    console.print(listed)
    _key(rows, console)


def _key(rows: Sequence[Row], console: Console) -> None:
    """What the marks mean, and what no column says at a glance."""
    from rich.text import Text

    said = ["> bad begins here"] if any(row.begins for row in rows) else []
    if any(row.growth is not None and row.growth >= JUMP for row in rows):
        said.append(f"^ {number(JUMP)} times the layer before, or more")
    largest = max((row for row in rows if row.growth is not None), key=lambda row: row.growth or 0.0, default=None)
    if largest is not None and (largest.growth or 0.0) > _GROWN:
        said.append(f"biggest jump: {columns.factor(largest.growth)} at {text(largest.tensor.layer)}")
    for line in said:
        console.print(Text(line, style="dim"))


def _short(of: Tensor, same: bool) -> str:
    tensor_of = "" if same else f" {of.param_name}{of.tensor_path}".rstrip()
    return f"{of.layer}{tensor_of}{f' {of.place}' if of.place else ''}"


def _scale(rows: Sequence[Row], bar: int) -> tuple[float, float]:
    logs = [math.log10(row.of.abs_max) for row in rows if row.of.abs_max]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    low = min(low, high - 1)  # what differs by less than a decade looks alike
    return low, (bar - 1) / (high - low)


def _bar(row: Row, width: int, low: float, per_decade: float, block: str) -> list[str]:
    """The magnitude as a bar, which is of letters where nothing finite is left; nothing where there is no place."""
    of = row.of
    if not width:
        return []
    if of.abs_max is None:
        return [LETTERS.get(of.kind or "", "") * width]
    return [block * (1 + round((math.log10(of.abs_max) - low) * per_decade)) if of.abs_max else ""]


def _cells(row: Row, wide: bool, any_bad: bool) -> list[str]:
    """What is right of the bar."""
    of = row.of
    found = [number(of.abs_max)]
    found += [columns.factor(row.growth)] if wide or not any_bad else []
    found += [columns.bits(of.headroom)] if wide else []
    found += [columns.counts(of)] if any_bad else []
    found += ["" if row.bad_since is None else str(row.bad_since)] if any_bad and wide else []
    return found


def _kept(rows: Sequence[Row]) -> list[int]:
    """Of many rows the places of those that say most."""
    if len(rows) <= _MOST:
        return list(range(len(rows)))
    begin = next((index for index, row in enumerate(rows) if row.begins), None)
    if begin is None:
        begin = next((index for index, row in enumerate(rows) if row.of.kind), None)
    places = {*range(_END), *range(len(rows) - _END, len(rows))}
    if begin is not None:
        places |= set(range(max(0, begin - _BEFORE), min(len(rows), begin + _AFTER + 1)))
    grown = [index for index, row in enumerate(rows) if (row.growth or 0.0) > 1]
    jumps = sorted(grown, key=lambda index: -(rows[index].growth or 0.0))
    count = _JUMPS if begin is not None else _MOST - 2 * _END
    return sorted(places | set(jumps[:count]))


def _gap(rows: Sequence[Row]) -> str:
    bad = sum(row.of.kind is not None for row in rows)
    return f"... {len(rows)} more" + (f", {bad} bad" if bad else "")
