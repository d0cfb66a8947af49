"""Our JSON Schemas as columns of DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN", "object": "JSON"}


def columns_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """A type for each property, in the schema's order. What may be of several types is text."""
    return {name: _type(described) for name, described in schema["properties"].items()}


def _type(described: Mapping[str, Any]) -> str:
    if "const" in described:
        return "BIGINT" if isinstance(described["const"], int) else "VARCHAR"
    declared = described.get("type", "string")
    kinds = [kind for kind in ([declared] if isinstance(declared, str) else declared) if kind != "null"]
    if kinds == ["array"]:
        item = described.get("items", {}).get("type")
        return f"{_TYPES[item]}[]" if item in _TYPES else "JSON"
    return _TYPES[kinds[0]] if len(kinds) == 1 else "VARCHAR"


def literal(columns: Mapping[str, str]) -> str:
    """As read_json takes them."""
    return "{" + ", ".join(f"{quoted(name)}: {quoted(type_)}" for name, type_ in columns.items()) + "}"


def quoted(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"
