"""The properties of a schema as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tables import escaped, table

#: What a page says of itself.
GENERATED = "Generated from `schemas/` by `tools/reference.py`; a test holds it to them.\n"


def properties(
    properties: Mapping[str, Any], *, default: bool = False, defs: Mapping[str, Any] | None = None
) -> Iterator[str]:
    entries = {
        name: {**(defs or {}).get(str(entry.get("$ref", "")).rpartition("/")[2], {}), **entry}
        for name, entry in properties.items()
    }
    heads, rows = ["name", "values"], [[f"`{name}`", _values(entry)] for name, entry in entries.items()]
    if default:
        heads.append("default")
        rows = [[*row, _default(entry)] for row, entry in zip(rows, entries.values(), strict=True)]
    if any("description" in entry for entry in entries.values()):
        heads.append("meaning")
        meanings = [escaped(entry.get("description", "")) for entry in entries.values()]
        rows = [[*row, meaning] for row, meaning in zip(rows, meanings, strict=True)]
    return table(heads, rows)


def _values(entry: Mapping[str, Any]) -> str:
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    if "enum" in entry:
        return ", ".join(f"`{'null' if value is None else value}`" for value in entry["enum"])
    kind = entry.get("type", "")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if "minimum" in entry:
        text += f" >= {entry['minimum']}"
    if "exclusiveMinimum" in entry:
        text += f" > {entry['exclusiveMinimum']}"
    items = entry.get("items", {})
    if "enum" in items:
        text += " of " + ", ".join(f"`{value}`" for value in items["enum"])
    return text


def _default(entry: Mapping[str, Any]) -> str:
    value = entry.get("default")
    if value in (None, "", []):
        return ""
    if isinstance(value, bool):
        return f'`"{int(value)}"`'
    if isinstance(value, list):
        return f'`"{",".join(value)}"`'
    return f'`"{value:g}"`' if isinstance(value, float) else f'`"{value}"`'
