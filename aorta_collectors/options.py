"""From a recipe's collect: block to `Options`: decode the strings, validate, freeze, in this order and only here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.schema_check import first_fault, suggestion


@dataclass(frozen=True)
class Options:
    """A validated collect: block.

    Attributes:
        raw: As written, all strings: what goes into an environment.
        values: Decoded to the schema's types, without defaults: only what the recipe says.
    """

    raw: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", MappingProxyType(dict(self.raw)))
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def on_missing(self) -> str:
        """ "error" or "warn": what becomes of a passing trial without verified evidence."""
        return str(self.values.get("on_missing", "error"))


def decode(raw: Mapping[str, str] | None, schema: Mapping[str, Any], checker: Any) -> Options:
    """Decode and validate a collect: block.

    Args:
        raw: The block; both keys and values are strings, as aorta guarantees.
        schema: A JSON Schema of type object. A property may refer to another schema; its own "type" says how its
            string is decoded.
        checker: A jsonschema validator of the same schema.

    Raises:
        OptionsError: An unknown name, text that does not decode, or a value that the schema does not allow.
    """
    raw = dict(raw or {})
    properties = schema.get("properties", {})
    values: dict[str, Any] = {}
    for name, text in raw.items():
        if name not in properties:
            hint = suggestion(name, list(properties)) or "; allowed: " + ", ".join(sorted(properties))
            raise OptionsError(name, f"unknown option{hint}")
        values[name] = _decode_one(name, text, properties[name])
    fault = first_fault(checker, values)
    if fault is not None:
        path, message = fault
        name, _, rest = path.partition(".")
        inside = properties.get(name, {}).get("type") == "object" and rest
        raise OptionsError(f"{name}: {rest}" if inside else path, message)
    return Options(raw, values)


def _decode_one(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "integer":
        # More digits than a count can have are no count; int() itself refuses more than some 4300.
        return int(text) if re.fullmatch(r"\s*[+-]?\d{1,100}\s*", text) else text
    if kind == "number":
        try:
            number = float(text)
        except ValueError:
            return text
        return number if math.isfinite(number) else text
    if kind == "boolean":
        if text not in ("0", "1"):
            raise OptionsError(name, f'must be "1" (on) or "0" (off), got {json.dumps(text)}')
        return text == "1"
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind == "object":
        return parse_object(name, text)
    return text


def parse_object(name: str, text: str) -> Any:
    """Parse JSON text. Raises OptionsError with the position of the fault; a key given twice is a fault too."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise OptionsError(name, f"must be JSON text: {error.msg} at {where}") from None
    except RecursionError:
        raise OptionsError(name, "is nested too deeply") from None
    except ValueError as error:
        raise OptionsError(name, str(error)) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = next(key for key in content if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"key {twice} is given twice")
    return content
