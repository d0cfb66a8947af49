"""A screen of sections, each a heading with rows, that share the lines of a terminal of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aorta_collectors.report.columns import table, tail

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

# Where there is no height to keep to.
_ROWS = 10
# What a section has before another one has more.
_LEAST_LINES = 4
INDENT = "  "


@dataclass(frozen=True)
class Section:
    """A line, or a heading with rows below it.

    Attributes:
        total: Rows that there are.
        draw: Draws the heading and so many rows.
        most: Rows that can be drawn.
        asks: Rows that it would have, fewer where others need the room more, or more where it has a picture of a row
            too; None for all.
    """

    total: int
    draw: Callable[[int], RenderableType]
    most: int
    asks: int | None = None


def arranged(head: Sequence[Text], sections: Sequence[Section], height: int | None) -> Group:
    """The head, and of each section what there is room for in about `height` lines; some rows where that is None."""
    from rich.console import Group
    from rich.text import Text

    for line in head:
        line.no_wrap, line.overflow = True, "crop"
    wanted = [1 + _rows_wanted(section, height) for section in sections]
    room = sum(wanted) if height is None else max(0, height - len(head))
    apart = height is None or room > sum(wanted) + len(sections)
    drawn: list[RenderableType] = [*head]
    for section, lines in zip(sections, _shared(wanted, room), strict=True):
        if lines < min(2, 1 + section.total):  # a heading alone says little
            continue
        if apart:
            drawn.append(Text())
        rows = min(lines - 1, section.most)
        if rows < section.total and rows > 1 and height is not None:
            rows -= 1
        drawn.append(section.draw(rows))
        if rows < section.total and (height is None or rows < lines - 1):
            drawn.append(Text(f"{INDENT}and {section.total - rows} more", style="dim"))
    return Group(*drawn)


def _rows_wanted(section: Section, height: int | None) -> int:
    if height is None:
        return min(section.most, _ROWS)
    return section.total if section.asks is None else section.asks


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Lines for each: first some for all, and what is left for those that come first."""
    given = [0] * len(wanted)
    for most in (_LEAST_LINES, room):
        for index, lines in enumerate(wanted):
            more = min(lines, most, given[index] + room) - given[index]
            if more > 0:
                given[index] += more
                room -= more
    return given


def text_lines(heading: Text, rows: Sequence[Text]) -> Section:
    from rich.console import Group
    from rich.text import Text

    def draw(count: int) -> RenderableType:
        lines = [line.copy() for line in (heading, *rows[:count])]
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        return Group(*lines) if lines else Text()

    return Section(len(rows), draw, len(rows))


def text_table(
    rows: Sequence[dict[str, str]], styles: Sequence[str], total: int, width: int, left: Sequence[str] = ()
) -> Section:
    """Rows by heading; the first column, a layer's name, has what the others leave.

    Args:
        total: Rows that there are, of which these are the first.
        left: Headings, beside the first two, of what is no number.
    """
    from rich.text import Text

    first, second, *others = rows[0]

    def draw(count: int) -> RenderableType:
        made = table(first, second, *others, left=(first, second, *left))
        # Numbers are whole, whatever has to give way.
        widths = [max(len(cell) for cell in (name, *(row[name] for row in rows[:count]))) for name in rows[0]]
        widths[1] = min(widths[1], max(6, width // 5))
        widths[0] = min(widths[0], max(4, width - sum(widths[1:]) - 2 * len(others) - 2))
        for column, size in zip(made.columns, widths, strict=True):
            column.width, column.overflow = size, "crop"
        for row, style in zip(rows[:count], styles, strict=False):
            made.add_row(*map(Text, (tail(row[first], widths[0], ".."), *list(row.values())[1:])), style=style)
        return made

    return Section(total, draw, len(rows))
