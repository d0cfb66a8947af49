"""A report as plain values: sections of paragraphs, lists, tables and verbatim text, before it is Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Code:
    """Text that is a name or a command, and is shown as it is."""

    text: str


@dataclass(frozen=True)
class Link:
    """A file.

    Attributes:
        text: Empty for its path.
        path: Absolute.
    """

    path: Path
    text: str = ""


@dataclass(frozen=True)
class Strong:
    text: str


Inline = str | Code | Link | Strong
Line = Sequence[Inline]


@dataclass(frozen=True)
class Paragraph:
    line: Line


@dataclass(frozen=True)
class Item:
    """One point of a list, with points of its own."""

    line: Line
    below: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Items:
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Table:
    """
    Attributes:
        right: Indexes of columns of numbers.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Verbatim:
    """Output or a file, line by line as it is.

    Attributes:
        wraps: Whether long lines are shown in several, as those of commands.
    """

    text: str
    wraps: bool = False


@dataclass(frozen=True)
class Heading:
    """Of a part of a section."""

    line: Line


Block = Paragraph | Items | Table | Verbatim | Heading


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]

    @property
    def id(self) -> str:
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True)
class Document:
    """
    Attributes:
        lead: Below the title, before all sections.
    """

    title: str
    lead: tuple[Block, ...]
    sections: tuple[Section, ...]


def paragraph(*line: Inline) -> Paragraph:
    return Paragraph(line)


def items(*lines: Line) -> Items:
    return Items(tuple(Item(line) for line in lines))


def joined(parts: Sequence[Inline], between: str = ", ") -> list[Inline]:
    """Parts with something between them."""
    found: list[Inline] = []
    for part in parts:
        found += [between, part] if found else [part]
    return found
