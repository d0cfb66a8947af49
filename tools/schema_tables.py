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
    rows = []
    for name, entry in properties.items():
        target = (defs or {}).get(str(entry.get("$ref", "")).rpartition("/")[2], {})
        merged = {**target, **entry}
        cells = [f"`{name}`", _values(merged)]
        if default:
            cells.append(_default(merged))
        rows.append([*cells, escaped(merged.get("description", ""))])
    return table(["name", "values", *(["default"] if default else []), "meaning"], rows)


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
