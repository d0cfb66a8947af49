"""Tables in Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Its lines. Cells are Markdown themselves; `escaped` makes such of a text."""
    yield _row(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield _row(row)


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """A text as code. Within a table, a bar in backquotes ends the cell or keeps its backslash, by who reads it."""
    if "|" not in text:
        return f"`{text}`"
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
