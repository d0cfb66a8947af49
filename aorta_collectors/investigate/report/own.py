"""What a person adds to a report: inference.md, gaps.md, and files in supplemental/, told apart from tools' own."""

from __future__ import annotations

import contextlib
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, DirectoryMissing, Kind
from aorta_collectors.investigate.digests import sha256_below

INFERENCE, GAPS, SUPPLEMENTAL = "inference.md", "gaps.md", "supplemental"
_LIMIT_BYTES = 1 << 20
_SHOWN_BYTES = 64 << 10

_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_HEADING = re.compile(r"#{1,6}\s")
# A Markdown link's target, a path between backquotes, and a bare word with a slash or a dot in it.
_PATHS = re.compile(r"\]\(<?([^)>]+)>?\)|`([^`]+)`|((?:[\w.+-]*/)[\w./+-]+|[\w+-]+\.\w+)")


@dataclass(frozen=True)
class Statement:
    """One paragraph or item of what a person wrote.

    Attributes:
        artifacts: Files that it links to and that are there, absolute.
    """

    text: str
    artifacts: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "artifacts": list(map(str, self.artifacts)), "supported": bool(self.artifacts)}


@dataclass(frozen=True)
class Supplemental:
    """One file in supplemental/.

    Attributes:
        text: Its beginning; None of what is no text.
        size: In bytes.
    """

    path: Path
    sha256: str
    size: int
    text: str | None

    def to_json(self) -> dict[str, Any]:
        return {"path": str(self.path), "sha256": self.sha256, "bytes": self.size}


def statements_in(root: Path, name: str) -> list[Statement]:
    """Of inference.md or gaps.md; none where there is no such file.

    Raises:
        ArtifactError: It cannot be read, or is no text.
    """
    with Anchor(root).open(root) as directory:
        if name not in directory.sizes():
            return []
        try:
            text = directory.read(name, _LIMIT_BYTES).decode()
        except UnicodeDecodeError:
            raise ArtifactError(f"{root / name} is no text in UTF-8") from None
    return [Statement(each, tuple(_linked(root, each))) for each in _paragraphs(text)]


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items, each in one line; headings are none."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = _ITEM.match(line)
        if lines and (item or not line.strip() or _HEADING.match(line)):
            yield " ".join(lines)
            lines = []
        if line.strip() and not _HEADING.match(line):
            lines.append(line[item.end() :].strip() if item else line.strip())


def _linked(root: Path, text: str) -> Iterator[Path]:
    """Files that a statement names, relative to the root or absolute."""
    found: dict[Path, None] = {}
    for groups in _PATHS.findall(text):
        name = next(filter(None, groups)).strip()
        # The target of a link has a space as %20; a name may have a percent sign of its own.
        for each in dict.fromkeys((name, urllib.parse.unquote(name))):
            with contextlib.suppress(OSError, ValueError):  # no path at all
                path = (root / each).resolve()
                if path.is_file():
                    found[path] = None
    yield from found


def supplemental_in(root: Path) -> list[Supplemental]:
    """Files below supplemental/, by their path. Links are not followed.

    Raises:
        ArtifactError: One cannot be read.
    """
    folder = root / SUPPLEMENTAL
    try:
        with Anchor(root).open(root) as directory:
            if dict(directory.entries()).get(SUPPLEMENTAL) is not Kind.DIRECTORY:
                return []
        digests = sha256_below(folder)
    except DirectoryMissing:
        return []
    found = []
    for name, digest in digests.items():
        path = folder / name
        with Anchor(root).open(path.parent) as directory:
            size = directory.sizes()[path.name]
            content = directory.read(path.name) if size <= _SHOWN_BYTES else None
        found.append(Supplemental(path, digest, size, _text(content)))
    return found


def _text(content: bytes | None) -> str | None:
    if content is None or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
