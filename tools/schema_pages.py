"""The pages that are tables of a schema: options and files of layer_numerics, and the receipt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tables import escaped, table

from aorta_collectors.schema_check import load_schema

_HEAD = "Generated from `schemas/` by `tools/reference.py`; a test holds it to them.\n"


def layer_numerics() -> str:
    options = load_schema("layer_numerics.options")
    spec = load_schema("layer_numerics.spec")
    both = {name: entry for name, entry in options["properties"].items() if "x-frontend" not in entry}
    native = {name: entry for name, entry in options["properties"].items() if "x-frontend" in entry}
    parts = [
        "# layer_numerics: options and files\n",
        _HEAD,
        "## The collect: block\n",
        options["description"] + "\n",
        *_properties(both, default=True),
        "\nThe sweep owns `NANLOG_DIR`. Alone it names the output directory, by default `nan_logger_out`.\n",
        "### Of the native engine only\n",
        "`frontend: aorta` refuses these: the stock logger does not have them.\n",
        *_properties(native, default=True),
        "\n## NANLOG_SPEC\n",
        spec["description"] + " `origin` is the native engine's only.\n",
        *_properties(spec["properties"]),
        "\n### An entry of watch\n",
        *_properties(spec["properties"]["watch"]["items"]["properties"], defs=spec["$defs"]),
        "\n### An entry of follow\n",
        *_properties(spec["properties"]["follow"]["items"]["properties"], defs=spec["$defs"]),
        "\n### A scope\n",
        *_properties(spec["$defs"]["scope"]["properties"]),
    ]
    for name in ("layer_numerics.summary", "layer_numerics.record"):
        schema = load_schema(name)
        parts += [f"\n## {schema['title']}\n", schema["description"] + "\n", *_properties(schema["properties"])]
    parts.append("\nThe file that says what verification found has [a page of its own](receipt.md).")
    return "\n".join(parts) + "\n"


def receipt() -> str:
    schema = load_schema("receipt")
    parts = [
        "# Receipts\n",
        _HEAD,
        f"`{schema['title']}`, beside the trial's record. "
        + schema["description"]
        + " [How verification decides](../explanation/verification.md) says in which order the checks are made.\n",
        *_properties(schema["properties"]),
    ]
    return "\n".join(parts) + "\n"


def _properties(
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
        return ", ".join(f"`{value}`" for value in entry["enum"])
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
