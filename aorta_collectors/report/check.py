"""The cells of a recipe and what each would launch: a table, then each launch once, however many cells share it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aorta_collectors.printable import printable
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# A launch is there to be copied: it is never shortened.
_UNBOUNDED = 100_000


def render_check(console: Console, cells: Sequence[Any], workload: str | None, other_names: Sequence[str] = ()) -> None:
    """Of `host.check.Planned`.

    Args:
        workload: None where a command is run.
        other_names: For which a plain `aorta sweep run` refuses the recipe.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("cell", "trials", "collectors", "launch", "sets"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "trials" else "left")
    for cell in cells:
        state = _state(cell)
        style = "red" if state == "refused" else "dim" if state.startswith("off") else ""
        collectors = ", ".join(map(text, cell.collectors)) or "-"
        table.add_row(
            Text(text(cell.name)), str(cell.trials), Text(collectors), Text(state, style=style), _variables(cell)
        )
    console.print(table)
    for what, names in _alike(cells, workload).items():
        console.print()
        console.print(Text(", ".join(map(text, names)), style="bold"), soft_wrap=True)
        for line in what:
            console.print(Text(f"  {line}", style="red" if line.startswith("refused") else ""), soft_wrap=True)
    refused = sum(bool(cell.refused) for cell in cells)
    console.print()
    if refused:
        console.print(f"{refused} of {len(cells)} cell(s) refused: the sweep would run nothing", style="red")
    else:
        console.print(f"valid; {len(cells)} cell(s), none refused", style="green")
    if other_names:
        unknown = ", ".join(map(text, other_names))
        console.print(
            f"for aorta-collectors sweep run: in this recipe aorta alone does not know {unknown}", soft_wrap=True
        )


def _alike(cells: Sequence[Any], workload: str | None) -> dict[tuple[str, ...], list[str]]:
    """Cells by what is to be said of their launch."""
    found: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        found.setdefault(tuple(_lines(cell, workload)), []).append(cell.name)
    return found


def _state(cell: Any) -> str:
    if cell.refused:
        return "refused"
    if cell.is_off:
        return "off: no collectors"
    if not cell.ours:
        return "as it is"
    return str(cell.launch.route)


def _lines(cell: Any, workload: str | None) -> list[str]:
    if cell.refused:
        return [f"refused: {printable(cell.refused)}"]
    lines, launch = [], cell.launch
    if launch.note:
        lines.append(text(launch.note))
    if launch.directory != os.curdir:
        lines.append(f"started in {text(launch.directory)}")
    if launch.route == "in-process":
        lines.append(f"{text(workload)} in aorta's process" + (", observed" if cell.ours and not cell.is_off else ""))
    return [*lines, *filter(None, [printable(launch.shell_text(), _UNBOUNDED)])]


def _variables(cell: Any) -> Text:
    from rich.text import Text

    return Text(" ".join(f"{text(name)}={text(value)}" for name, value in sorted(cell.variables.items())) or "-")
