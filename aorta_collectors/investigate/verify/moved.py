"""A report beside one that is made again where its investigation lies now: what lies below the root is the same."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.investigate.report.markdown import as_text

# No path has it in it.
_ROOT = "\0root\0"
_QUOTED = re.compile(rf"(?P<quote>'|&\#39;)({_ROOT}(?:(?!(?P=quote))[^\n])*)(?P=quote)")


@dataclass(frozen=True)
class Roots:
    """
    Attributes:
        before: Where the investigation lay when the report was written, absolute.
        now: Where it lies.
    """

    before: str
    now: str

    @property
    def has_moved(self) -> bool:
        return self.before != self.now

    @property
    def note(self) -> str:
        return (
            f"moved from {self.before}: absolute links of REPORT.md lead there; run `investigate report` again"
            if self.has_moved
            else ""
        )

    def below(self, path: str) -> str:
        """A path below either root relative to it; any other as it is."""
        for root in (self.before, self.now):
            if path.startswith(f"{root}/"):
                return path.removeprefix(f"{root}/")
        return path

    def plain(self, text: str) -> str:
        """A text with one word in the place of both roots, however they are written in it."""
        if not self.has_moved:
            return text
        written = {form for root in (self.before, self.now) for form in (root, _as_html(root), as_text(root))}
        # Of /a and /a/b, the longer one first.
        every = "|".join(re.escape(form) for form in sorted(written, key=len, reverse=True))
        found = re.sub(rf"(?:{every})(?![\w.-])", lambda _: _ROOT, text)
        # Only where a shell would act on something in a root is a path below it quoted.
        return _QUOTED.sub(r"\2", found)


def with_digests(text: str, found: Mapping[str, str], written: Mapping[str, str]) -> str:
    """A text with the digests of files as they were written, in the place of those of the same files made again.

    Args:
        found: Text of each file made again, by path below the root.
        written: Digest of each file that was written.
    """
    for name, content in found.items():
        if name in written:
            text = text.replace(hashlib.sha256(content.encode()).hexdigest(), written[name])
    return text


def resolved(root: Path, name: str) -> Path | None:
    """Where a cited path lies now: absolute, or below the root; None for one that leads out of it."""
    path = Path(name)
    return root / path if path.is_absolute() or ".." not in path.parts else None


def _as_html(root: str) -> str:
    return html.escape(root).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
