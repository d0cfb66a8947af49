"""Which records are exported: those of some layers and roles, as a condition in SQL."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from aorta_collectors.analysis.columns import quoted
from aorta_collectors.analysis.database import Database
from aorta_collectors.errors import ArtifactError
from aorta_collectors.printable import printable

_NEAR = 5


def condition(database: Database, layers: Sequence[str], roles: Sequence[str]) -> str:
    """True for the records that are wanted.

    Args:
        layers: Module paths, or layers' names; in one that is not there as it is, * stands for any characters.
        roles: Channels, such as act.

    Raises:
        ArtifactError: One of them is not there; the error lists the nearest, or what is.
    """
    if not layers and not roles:
        return "true"
    found = database.rows("SELECT DISTINCT layer, role FROM records")
    there = sorted({str(layer) for layer, _ in found})
    wanted = [name for pattern in layers for name in _matching(pattern, there)]
    known = sorted({str(role) for _, role in found})
    for role in roles:
        if role not in known:
            raise ArtifactError(f"no record has the role {role!r}; there is: {', '.join(known) or 'none'}")
    conditions = [("layer", wanted), ("role", roles)]
    return " AND ".join(f"{name} IN ({', '.join(map(quoted, values))})" for name, values in conditions if values)


def _matching(pattern: str, there: Sequence[str]) -> list[str]:
    if pattern in there:
        return [pattern]
    if "*" in pattern:
        parts = pattern.split("*")
        if found := [name for name in there if _has_in_order(name, parts)]:
            return found
    near = difflib.get_close_matches(pattern, there, n=_NEAR, cutoff=0.3) or there[:_NEAR]
    listed = ", ".join(printable(name, 100) for name in near) or "none"
    raise ArtifactError(f"no record of layer {pattern!r}; there is, among {len(there)}: {listed}")


def _has_in_order(name: str, parts: Sequence[str]) -> bool:
    """Whether a name begins with the first part, ends with the last, and has the others between them."""
    first, *middle, last = parts
    if not name.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return name.endswith(last) and len(name) - len(last) >= at
