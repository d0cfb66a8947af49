"""Write docs/reference/layer_numerics.md from the schemas; with --check, say whether it is up to date."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.schema_check import load_schema

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "layer_numerics.md"
_HEAD = """# layer_numerics: options and files

Generated from `schemas/` by `tools/reference.py`; a test holds it to them.
"""


def page() -> str:
    options = load_schema("layer_numerics.options")
    spec = load_schema("layer_numerics.spec")
    both = {name: entry for name, entry in options["properties"].items() if "x-frontend" not in entry}
    native = {name: entry for name, entry in options["properties"].items() if "x-frontend" in entry}
    parts = [
        _HEAD,
        "## The collect: block\n",
        options["description"] + "\n",
        *_table(both, default=True),
        "\nThe sweep owns `NANLOG_DIR`. Alone it names the output directory, by default `nan_logger_out`.\n",
        "### Of the native engine only\n",
        "`frontend: aorta` refuses these: the stock logger does not have them.\n",
        *_table(native, default=True),
        "\n## NANLOG_SPEC\n",
        spec["description"] + " `origin` is the native engine's only.\n",
        *_table(spec["properties"]),
        "\n### An entry of watch\n",
        *_table(spec["properties"]["watch"]["items"]["properties"], defs=spec["$defs"]),
        "\n### An entry of follow\n",
        *_table(spec["properties"]["follow"]["items"]["properties"], defs=spec["$defs"]),
        "\n### A scope\n",
        *_table(spec["$defs"]["scope"]["properties"]),
    ]
    for name in ("layer_numerics.summary", "layer_numerics.record", "receipt"):
        schema = load_schema(name)
        parts += [f"\n## {schema['title']}\n", schema["description"] + "\n", *_table(schema["properties"])]
    return "\n".join(parts) + "\n"


def _table(
    properties: Mapping[str, Any], *, default: bool = False, defs: Mapping[str, Any] | None = None
) -> Iterator[str]:
    yield "| name | values |" + (" default |" if default else "") + " meaning |"
    yield "|---|---|" + ("---|" if default else "") + "---|"
    for name, entry in properties.items():
        target = (defs or {}).get(str(entry.get("$ref", "")).rpartition("/")[2], {})
        merged = {**target, **entry}
        cells = [f"`{name}`", _values(merged)]
        if default:
            cells.append(_default(merged))
        cells.append(_escaped(merged.get("description", "")))
        yield "| " + " | ".join(cells) + " |"


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


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
