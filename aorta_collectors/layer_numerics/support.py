"""The rules of the NANLOG contract that no JSON Schema can say, and what the stock logger does not have.

The schemas know every option; "x-frontend": "native" marks those that `frontend: aorta` refuses by name, and "x-native"
words of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.layer_numerics.flat import OPTIONS_SCHEMA, parse_bounds
from aorta_collectors.options import Options
from aorta_collectors.schema_check import check, load_schema

SPEC_SCHEMA = "layer_numerics.spec"


def check_spec(spec: Any, *, native: bool = True) -> None:
    """Check a parsed NANLOG_SPEC. Raises OptionsError with a path such as "follow[0].stride"."""
    check(SPEC_SCHEMA, spec)
    for index, entry in enumerate(spec.get("follow", [])):
        low, high = entry.get("bounds", (0, 0))
        if low > high:
            raise OptionsError(f"follow[{index}].bounds", f"lo must not be above hi, got [{low}, {high}]")
    if not native:
        _refuse_native_only(SPEC_SCHEMA, spec)


def check_flat(options: Options, *, native: bool = True) -> None:
    """Check the flat variables of a collect: block against each other. Raises OptionsError."""
    values = options.values
    for fault in parse_bounds(values.get("NANLOG_BOUNDS", ""))[1]:
        raise OptionsError("NANLOG_BOUNDS", fault)
    low, high = values.get("NANLOG_BOUND_LO"), values.get("NANLOG_BOUND_HI")
    if low is not None and high is not None and low > high:
        raise OptionsError("NANLOG_BOUND_LO", f"must not be above NANLOG_BOUND_HI, got {low} and {high}")
    if values.get("NANLOG_SPARSE_HEAVY") and not values.get("NANLOG_SPARSE"):
        raise OptionsError("NANLOG_SPARSE_HEAVY", 'needs NANLOG_SPARSE: "1", to whose records it adds')
    if not native:
        _refuse_native_only(OPTIONS_SCHEMA, values)


def _refuse_native_only(schema: str, values: Mapping[str, Any]) -> None:
    """Refuse what the stock logger would pass over. Saying that it is off asks for nothing."""
    refusal = "frontend: aorta is the stock logger, which does not have it; leave it out, or set frontend: native"
    for name, entry in load_schema(schema)["properties"].items():
        value = values.get(name, False)
        if entry.get("x-frontend") == "native" and value is not False:
            raise OptionsError(name, refusal)
        for word in entry.get("items", {}).get("x-native", ()):
            if value and word in value:
                raise OptionsError(f"{name}[{value.index(word)}]", refusal)
