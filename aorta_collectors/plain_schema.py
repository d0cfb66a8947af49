"""What is wrong with a value by JSON Schema, as far as the packaged schemas go, with the standard library alone.

The single file that `aorta-collectors pack` makes runs where jsonschema is not installed. The faults are those that
jsonschema finds, in the same order, and in its words where those are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: Keywords that say something of a value.
KEYWORDS = frozenset(
    (
        *("$ref", "additionalProperties", "allOf", "const", "enum", "exclusiveMinimum", "if", "items", "maxItems"),
        *("maximum", "minItems", "minLength", "minProperties", "minimum", "pattern", "properties", "required", "then"),
        "type",
    )
)
#: Keywords that describe, or that `schema_check` reads itself.
DESCRIBING = frozenset(
    ("$schema", "$id", "$defs", "title", "description", "default", "errorMessage", "x-frontend", "x-native")
)

_Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """What is wrong with a part of a value; the attributes are those of jsonschema's ValidationError.

    Attributes:
        path: Keys and indices that lead to the part.
        validator, validator_value: The keyword that does not hold, and what stands behind it.
        schema: Where that keyword stands.
    """

    path: _Path
    validator: str
    validator_value: Any
    schema: Mapping[str, Any]
    instance: Any
    message: str


class PlainValidator:
    """Finds the faults of one value.

    Args:
        schema: What values are checked against.
        others: Schemas that it may refer to by their $id.
    """

    def __init__(self, schema: Mapping[str, Any], others: list[dict[str, Any]]) -> None:
        self._schema = schema
        self._by_id: dict[str, Mapping[str, Any]] = {other["$id"]: other for other in others}

    def iter_errors(self, value: Any) -> Iterator[Fault]:
        return self._faults(value, self._schema, self._schema, ())

    def _faults(self, value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: _Path) -> Iterator[Fault]:
        for keyword, rule in schema.items():
            match keyword:
                case "$ref":
                    target, where = referred(rule, root, self._by_id)
                    yield from self._faults(value, target, where, path)
                case "allOf":
                    for part in rule:
                        yield from self._faults(value, part, root, path)
                case "if":
                    if "then" in schema and next(self._faults(value, rule, root, path), None) is None:
                        yield from self._faults(value, schema["then"], root, path)
                case "properties" if isinstance(value, dict):
                    for key, part in rule.items():
                        if key in value:
                            yield from self._faults(value[key], part, root, (*path, key))
                case "additionalProperties" if isinstance(rule, Mapping) and isinstance(value, dict):
                    for key in value:
                        if key not in schema.get("properties", {}):
                            yield from self._faults(value[key], rule, root, (*path, key))
                case "items" if isinstance(value, list):
                    for index, item in enumerate(value):
                        yield from self._faults(item, rule, root, (*path, index))
                case _:
                    for message in _messages(keyword, rule, value, schema):
                        yield Fault(path, keyword, rule, schema, value, message)


def referred(
    reference: str, root: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The schema that a $ref in `root` names, and the one in which that stands."""
    name, _, pointer = reference.partition("#")
    target = where = by_id[name] if name else root
    for part in pointer.split("/")[1:]:
        target = target[part]
    return target, where


def _messages(keyword: str, rule: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """What a keyword that looks at nothing but the value itself has against it."""
    is_number = _is_a("number", value)
    match keyword:
        case "type" if not any(_is_a(kind, value) for kind in ([rule] if isinstance(rule, str) else rule)):
            yield f"{value!r} is not of type {rule!r}"
        case "const" if not _same(value, rule):
            yield f"{rule!r} was expected"
        case "enum" if not any(_same(value, each) for each in rule):
            yield f"{value!r} is not one of {rule!r}"
        case "minimum" if is_number and value < rule:
            yield f"{value!r} is less than the minimum of {rule!r}"
        case "maximum" if is_number and value > rule:
            yield f"{value!r} is greater than the maximum of {rule!r}"
        case "exclusiveMinimum" if is_number and value <= rule:
            yield f"{value!r} is less than or equal to the minimum of {rule!r}"
        case "minLength" if isinstance(value, str) and len(value) < rule:
            yield f"{value!r} is too short"
        case "pattern" if isinstance(value, str) and not re.search(rule, value):
            yield f"{value!r} does not match {rule!r}"
        case "minItems" if isinstance(value, list) and len(value) < rule:
            yield f"{value!r} is too short"
        case "maxItems" if isinstance(value, list) and len(value) > rule:
            yield f"{value!r} is too long"
        case "minProperties" if isinstance(value, dict) and len(value) < rule:
            yield f"{value!r} does not have enough properties"
        case "required" if isinstance(value, dict):
            yield from (f"{key!r} is a required property" for key in rule if key not in value)
        case "additionalProperties" if rule is False and isinstance(value, dict):
            if not value.keys() <= schema.get("properties", {}).keys():
                yield "additional properties are not allowed"


def _is_a(kind: str, value: Any) -> bool:
    match kind:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "null":
            return value is None
    return isinstance(value, {"string": str, "array": list, "object": dict}[kind])


def _same(value: Any, other: Any) -> bool:
    """JSON's equality, in which true is not 1."""
    return isinstance(value, bool) is isinstance(other, bool) and bool(value == other)
