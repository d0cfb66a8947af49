"""Which layers somebody means by a name, a pattern, or the end of a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from aorta_collectors.errors import ArtifactError

_NEAR = 5


def meant(there: Iterable[tuple[str, str | None]], patterns: Sequence[str], path: Path) -> list[str]:
    """The layers, each once, in the order of the patterns. An exact name means that layer alone.

    Args:
        there: A record's `layer`, by which it is found, and its `layer_name`, by which it may be called too.
        path: Where they were captured.

    Raises:
        ArtifactError: There is none; the error lists names that are written almost so.
    """
    names = list(dict.fromkeys((layer, name) for layer, own in there for name in (layer, own) if name is not None))
    found: dict[str, None] = {}
    for pattern in patterns:
        matching = [layer for layer, name in names if name == pattern] or [
            layer for layer, name in names if fnmatchcase(name, pattern) or name.endswith(f".{pattern}")
        ]
        if not matching:
            near = _near(pattern, list(dict.fromkeys(layer for layer, _ in names)))
            raise ArtifactError(
                f"nothing is recorded of a layer {pattern!r}; {f'near: {near}; ' if near else ''}"
                f"`aorta-collectors layers {path} --all` lists all"
            )
        found.update(dict.fromkeys(matching))
    return list(found)


def _near(pattern: str, layers: Sequence[str]) -> str:
    """Layers of which the name, or its end, is almost the pattern, or has it in it."""
    ends: dict[str, list[str]] = {}
    for layer in layers:
        parts = layer.lower().split(".")
        for start in range(len(parts)):
            ends.setdefault(".".join(parts[start:]), []).append(layer)
    wanted = pattern.lower().strip("*?.")
    close = [layer for end in difflib.get_close_matches(wanted, ends, _NEAR) for layer in ends[end]]
    within = [layer for layer in layers if wanted and wanted in layer.lower()]
    return ", ".join(list(dict.fromkeys(close + within))[:_NEAR])
