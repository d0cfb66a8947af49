"""A document as Markdown: what others chose is text in it, and paths are absolute."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aorta_collectors.investigate.report.document import (
    Block,
    Code,
    Document,
    Heading,
    Inline,
    Items,
    Line,
    Paragraph,
    Strong,
    Table,
    Verbatim,
)
from aorta_collectors.printable import printable

_MOST = 20_000
_SPECIAL = re.compile(r"[\\`*<\[\]]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|~(?=~)|&(?=#?\w+;)")
_AT_START = re.compile(r"^(\s*)([#>+=-]|\d+(?=[.)]\s))")
_TICKS = re.compile(r"`+")


def markdown(document: Document) -> str:
    """The text of REPORT.md."""
    blocks = [f"# {as_text(document.title)}"]
    blocks += [text for block in document.lead for text in _block(block)]
    for section in document.sections:
        blocks.append(f"## {as_text(section.title)}")
        blocks += [text for block in section.blocks for text in _block(block)]
    return "\n\n".join(blocks) + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield _begun(_line(block.line))
    elif isinstance(block, Heading):
        yield f"### {_line(block.line)}"
    elif isinstance(block, Verbatim):
        yield _fenced(block.text)
    elif isinstance(block, Items):
        lines = []
        for item in block.items:
            lines.append(f"- {_begun(_line(item.line))}")
            lines += [f"  - {_line(line)}" for line in item.below]
        yield "\n".join(lines)
    elif isinstance(block, Table):
        yield "\n".join(_table(block))


def _table(table: Table) -> Iterator[str]:
    yield _row([_cell((heading,)) for heading in table.headings])
    yield _row(["---:" if index in table.right else "---" for index in range(len(table.headings))])
    for row in table.rows:
        yield _row([_cell(cell) for cell in row])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(line: Line) -> str:
    # Within a table, also within code, a bar ends the cell.
    return _line(line).replace("|", "\\|")


def _begun(text: str) -> str:
    """A text that begins a line, and is no heading or list."""
    return _AT_START.sub(r"\1\\\2", text)


def _line(line: Line) -> str:
    return "".join(map(_inline, line))


def _inline(part: Inline) -> str:
    if isinstance(part, str):
        return as_text(part)
    if isinstance(part, Code):
        return _code(part.text)
    if isinstance(part, Strong):
        # A space within the marks would take their meaning from them.
        bare = part.text.rstrip()
        return f"**{as_text(bare)}**{part.text[len(bare) :]}"
    target = printable(str(part.path), _MOST).replace("\\", "\\\\").replace("<", "\\<").replace(">", "\\>")
    return f"[{as_text(part.text) if part.text else _code(str(part.path))}](<{target}>)"


def as_text(text: str) -> str:
    """Text in which nothing is markup."""
    return _SPECIAL.sub(lambda found: f"\\{found.group()}", printable(text, _MOST))


def _code(text: str) -> str:
    content = printable(text, _MOST)
    ticks = "`" * (1 + max((len(found) for found in _TICKS.findall(content)), default=0))
    pad = " " if content.startswith("`") or content.endswith("`") or not content else ""
    return f"{ticks}{pad}{content}{pad}{ticks}"


def _fenced(text: str) -> str:
    lines = [printable(line, _MOST) for line in text.splitlines()]
    longest = max((len(found) for line in lines for found in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])
