"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Its lines. Cells are Markdown themselves; `escaped` makes such of a text."""
    yield _row(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield _row(row)


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
