"""The pages that are tables of a schema: options and files of layer_numerics, and the receipt."""

from __future__ import annotations

from schema_tables import GENERATED, properties
from tables import escaped

from aorta_collectors.schema_check import load_schema


def layer_numerics() -> str:
    options = load_schema("layer_numerics.options")
    spec = load_schema("layer_numerics.spec")
    both = {name: entry for name, entry in options["properties"].items() if "x-frontend" not in entry}
    native = {name: entry for name, entry in options["properties"].items() if "x-frontend" in entry}
    parts = [
        "# layer_numerics: options and files\n",
        GENERATED,
        "## The collect: block\n",
        options["description"] + "\n",
        *properties(both, default=True),
        "\nThe sweep owns `NANLOG_DIR`. Alone it names the output directory, by default `nan_logger_out`.\n",
        "### Of the native engine only\n",
        "`frontend: aorta` refuses these: the stock logger does not have them.\n",
        *properties(native, default=True),
        "\n## NANLOG_SPEC\n",
        spec["description"] + " `origin` is the native engine's only.\n",
        *properties(spec["properties"]),
        "\n### An entry of watch\n",
        *properties(spec["properties"]["watch"]["items"]["properties"], defs=spec["$defs"]),
        "\n### An entry of follow\n",
        *properties(spec["properties"]["follow"]["items"]["properties"], defs=spec["$defs"]),
        "\n### A scope\n",
        *properties(spec["$defs"]["scope"]["properties"]),
    ]
    for name in ("layer_numerics.summary", "layer_numerics.record"):
        schema = load_schema(name)
        parts += [f"\n## {escaped(schema['title'])}\n", schema["description"] + "\n", *properties(schema["properties"])]
    parts.append("\nThe file that says what verification found has [a page of its own](receipt.md).")
    return "\n".join(parts) + "\n"


def receipt() -> str:
    schema = load_schema("receipt")
    parts = [
        "# Receipts\n",
        GENERATED,
        f"`{schema['title']}`, beside the trial's record. "
        + schema["description"]
        + " [How verification decides](../explanation/verification.md) says in which order the checks are made.\n",
        *properties(schema["properties"]),
    ]
    return "\n".join(parts) + "\n"
