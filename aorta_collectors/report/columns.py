"""How magnitudes, and what is bad, are written in the columns of a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aorta_collectors.analysis.magnitude import Magnitude
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Fewer columns than these are narrow.
NARROW = 64


def ascii_only(console: Console) -> bool:
    """Whether the terminal, or the pipe, has no other characters."""
    return not console.encoding.lower().startswith("utf")


def table(*headings: str, left: tuple[str, ...] = (), folded: tuple[str, ...] = ()) -> Table:
    """Without lines; all but `left` and `folded` are numbers, which stand to the right.

    Args:
        folded: Of names, which go on in the next line where the terminal is narrow. All others are whole or nothing.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        names = heading in folded
        made.add_column(
            heading,
            no_wrap=not names,
            overflow="fold" if names else "ellipsis",
            justify="left" if names or heading in left else "right",
        )
    return made


class ComparedRow(NamedTuple):
    """Two that were compared.

    Attributes:
        name: Of both.
        step: From which on they differ, or "-".
        style: Of the row.
    """

    name: str
    step: str
    style: str
    all_matched: bool


def compared(rows: Sequence[ComparedRow], counts: Mapping[str, Sequence[int]], most: int) -> Table:
    """A table of them, those that do not match first.

    Args:
        counts: Under "matched", "differ" and others, a number for each row. Others than these two are left out where
            all are 0.
    """
    shown = {title: told for title, told in counts.items() if any(told) or title in ("matched", "differ")}
    made = table("compared", *shown, "from step", folded=("compared",))
    order = sorted(range(len(rows)), key=lambda index: rows[index].all_matched)
    for index in order[:most]:
        row = rows[index]
        made.add_row(row.name, *(str(told[index]) for told in shown.values()), row.step, style=row.style)
    if len(rows) > most:
        made.add_row(f"and {len(rows) - most} more (--most, --json)")
    return made


def tail(what: str, width: int, dots: str) -> str:
    """A layer's name in at most `width` columns: its end tells layers apart."""
    shown = text(what)
    return shown if len(shown) <= width else dots + shown[len(shown) - width + len(dots) :]


def factor(growth: float | None) -> str:
    """Such as x1.2, x130 and x3e+09; empty for None."""
    if growth is None:
        return ""
    return f"x{growth:.0f}" if 100 <= growth < 1e5 else f"x{growth:.2g}"


def bits(headroom: float | None) -> str:
    return "-" if headroom is None else f"{headroom:.1f}"


def counts(of: Magnitude) -> str:
    """How many elements are bad, such as "3 nan 12 inf"; empty where none is."""
    numbers = (("nan", of.nans), ("inf", of.infs), ("huge", of.huge), ("oob", of.oob))
    return " ".join(f"{number(count)} {kind}" for kind, count in numbers if count) or (of.kind or "")


def dtype(name: str | None) -> str:
    """Without the torch."""
    return text((name or "-").removeprefix("torch."))
