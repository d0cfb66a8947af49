"""What the native engine can do of the NANLOG contract. The rest is refused by name, never ignored.

The schemas know every option; "x-frontend": "aorta" marks those that only the stock logger has.
"""

from __future__ import annotations

from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.options import Options
from aorta_collectors.schema_check import check, load_schema

SPEC_SCHEMA = "layer_numerics.spec"
OPTIONS_SCHEMA = "layer_numerics.options"


def check_spec(spec: Any, *, native: bool = True) -> None:
    """Check a parsed NANLOG_SPEC. Raises OptionsError with a path such as "follow[0].stride"."""
    check(SPEC_SCHEMA, spec)
    if not native:
        return
    for key, schema in load_schema(SPEC_SCHEMA)["properties"].items():
        if schema.get("x-frontend") == "aorta" and spec.get(key):
            raise OptionsError(key, _refusal(key))


def check_flat(options: Options) -> None:
    """Refuse flat variables that the native engine does not know, unless they only say their default."""
    for name, schema in load_schema(OPTIONS_SCHEMA)["properties"].items():
        if schema.get("x-frontend") != "aorta" or name not in options.values:
            continue
        if options.values[name] != schema.get("default", object()):
            raise OptionsError(name, _refusal(name))


def _refusal(name: str) -> str:
    return (
        f"the native engine does not have {name} yet. Leave it out, or set frontend: aorta to use the stock logger, "
        "which has it for scripts that build a DistributedModelParallel"
    )
