"""The result of a query: as a table to look at, or as CSV, JSON, JSON lines or Markdown."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from aorta_collectors.printable import printable
from aorta_collectors.report.wording import number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from aorta_collectors.analysis.query import View

#: Name and type of each column.
Columns = Sequence[tuple[str, str]]
Rows = Iterable[Sequence[Any]]

#: Most rows that a table shows: its columns are as wide as the widest of them, so that all are in memory.
TABLE_ROWS = 1000
_MOST = 2000
# Types whose values JSON has.
_AS_THEY_ARE = frozenset({"BIGINT", "INTEGER", "HUGEINT", "BOOLEAN", "VARCHAR"})


def render_table(console: Console, columns: Columns, rows: Rows) -> None:
    """A table; where its lines would not fit, the columns of each row below one another."""
    rows = iter(rows)
    shown = [[_shown(value) for value in row] for row in itertools.islice(rows, TABLE_ROWS)]
    numeric = {index for index, (_, type_) in enumerate(columns) if _is_number(type_)}
    names = [printable(name) for name, _ in columns]
    table = _table(names, shown, numeric)
    if console.measure(table, options=console.options.update(max_width=100_000)).maximum <= console.width:
        console.print(table)
    else:
        _below_one_another(console, names, shown)
    rest = next(rows, None)
    count = f"{len(shown)} row{'' if len(shown) == 1 else 's'}"
    console.print(f"the first {count}; --format csv or jsonl writes all" if rest is not None else count, style="dim")


def write_csv(stream: TextIO, columns: Columns, rows: Rows) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    # What moves the cursor is escaped where there is one; elsewhere the values are what they are.
    change, kept = (_shown_whole, frozenset[str]()) if stream.isatty() else (_plain, _AS_THEY_ARE - {"BOOLEAN"})
    changed = [index for index, (_, type_) in enumerate(columns) if type_ not in kept]
    writer.writerow([change(name) for name, _ in columns])
    for row in rows:
        values = list(row)
        for index in changed:
            if row[index] is not None:
                values[index] = change(row[index])
        writer.writerow(values)


def write_json_lines(stream: TextIO, columns: Columns, rows: Rows) -> None:
    for line in _json_lines(columns, rows):
        stream.write(f"{line}\n")


def write_json(stream: TextIO, columns: Columns, rows: Rows) -> None:
    """One document, a list of objects."""
    before = "[\n"
    for line in _json_lines(columns, rows):
        stream.write(f"{before}  {line}")
        before = ",\n"
    stream.write("[]\n" if before == "[\n" else "\n]\n")


def write_markdown(stream: TextIO, columns: Columns, rows: Rows) -> None:
    def line(values: Iterable[str]) -> str:
        return "| " + " | ".join(value.replace("\\", "\\\\").replace("|", "\\|") for value in values) + " |\n"

    stream.write(line(printable(name) for name, _ in columns))
    stream.write("|" + "|".join(" ---: " if _is_number(type_) else " --- " for _, type_ in columns) + "|\n")
    for row in rows:
        # A layer's name may look like HTML, which Markdown passes on.
        stream.write(line(_shown(value).replace("&", "&amp;").replace("<", "&lt;") for value in row))


def render_views(console: Console, views: Sequence[View], examples: Sequence[tuple[str, str]], path: str) -> None:
    """The views with their columns, and what could be asked."""
    from rich.table import Table
    from rich.text import Text

    for view in views:
        console.print(Text.assemble((view.name, "bold"), f"  {view.purpose}"))
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="cyan")
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for column in view.columns:
            table.add_row(f"  {column.name}", column.type, Text(printable(column.description)))
        console.print(table)
        console.print()
    console.print(Text("Examples", style="bold"))
    for title, sql in examples:
        console.print(f"  {title}:")
        console.print(Text(f'  aorta-collectors query {path} "{sql}"', style="cyan"), soft_wrap=True)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], numeric: set[int]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(names):
        table.add_column(Text(name), no_wrap=True, justify="right" if index in numeric else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _below_one_another(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    for index, row in enumerate(rows, start=1):
        console.print(f"row {index}", style="bold")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="cyan", overflow="fold")
        table.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            table.add_row(Text(f"  {name}"), Text(value))
        console.print(table)


def _json_lines(columns: Columns, rows: Rows) -> Iterator[str]:
    names = _unlike([name for name, _ in columns])
    changes: dict[int, Callable[[Any], Any]] = {
        index: json.loads if type_ == "JSON" else _for_json
        for index, (_, type_) in enumerate(columns)
        if type_ not in _AS_THEY_ARE
    }
    for row in rows:
        values = dict(zip(names, row, strict=True))
        for index, change in changes.items():
            if row[index] is not None:
                values[names[index]] = change(row[index])
        yield json.dumps(values, allow_nan=False)


def _unlike(names: Sequence[str]) -> list[str]:
    """Names as keys: a second column of a name is NAME_2."""
    found: list[str] = []
    for name in names:
        number = 1
        while (key := name if number == 1 else f"{name}_{number}") in found:
            number += 1
        found.append(key)
    return found


def _for_json(value: Any) -> Any:
    """NaN and the infinities become the texts that records have for them: JSON has no such numbers."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _non_finite(value)
    if isinstance(value, dict):
        return {str(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    return str(value)


def _non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def _plain(value: Any) -> Any:
    """For CSV: an empty field for NULL, JSON for what is nested, and numbers in full."""
    if isinstance(value, bool):
        return "true" if value else "false"
    found = _for_json(value)
    return json.dumps(found) if isinstance(found, list | dict) else found


def _shown_whole(value: Any) -> Any:
    found = _plain(value)
    return printable(found) if isinstance(found, str) else found


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else _non_finite(value)
    return "-" if value is None else printable(str(_plain(value)), _MOST)


def _is_number(type_: str) -> bool:
    return not type_.endswith("]") and ("INT" in type_ or type_.startswith(("DOUBLE", "FLOAT", "DECIMAL")))
