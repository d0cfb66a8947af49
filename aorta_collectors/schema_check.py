"""The packaged JSON Schemas, and checking a value against one with errors that name the place and the fix.

In a wheel, and in the file that `aorta-collectors pack` makes, the schemas lie in the package, in a checkout in
schemas/ beside it. What fits is told by `bulk_schema`, for many values at once, and what is wrong with one by
`plain_schema`. Neither needs more than the standard library: the plugin loads cheaply, and works beside torch alone.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.bulk_schema import BulkSchema
from aorta_collectors.errors import OptionsError
from aorta_collectors.plain_schema import PlainValidator

if TYPE_CHECKING:
    from importlib.abc import Traversable


def schema_names() -> list[str]:
    names = (entry.name for entry in _directory().iterdir())
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def load_schema(name: str) -> dict[str, Any]:
    """The schema `name`, such as "layer_numerics.spec". Raises FileNotFoundError for an unknown one."""
    loaded: dict[str, Any] = json.loads(load_schema_bytes(name))
    return loaded


def load_schema_bytes(name: str) -> bytes:
    """The same, as it is written down."""
    return (_directory() / f"{name}.json").read_bytes()


def check(name: str, value: Any) -> None:
    """Check a decoded value against a schema.

    Raises:
        OptionsError: With the path of the first fault and a sentence on what is allowed.
    """
    error = first_error(name, value)
    if error is not None:
        raise OptionsError(*error)


def first_error(name: str, value: Any) -> tuple[str, str] | None:
    """(path, message) of the first fault of `value`, or None. NaN and Inf are faults anywhere."""
    for path, number in _non_finite(value, ""):
        return path, f"must be a finite number, got {number}"
    return first_fault(validator(name), value)


def first_fault(checker: Any, value: Any) -> tuple[str, str] | None:
    """Like `first_error`, for a caller that checks many values with one `validator`."""
    errors = list(checker.iter_errors(value))
    if not errors:
        return None
    # The outermost fault first: an unknown key says more than what follows from it.
    error = min(errors, key=lambda found: (len(found.path), found.validator != "additionalProperties"))
    return _path(error.path), _message(error)


def fault_text(fault: tuple[str, str]) -> str:
    """A fault as the end of a sentence: "steps: must be ...", or, of the value as a whole, what is wrong alone."""
    path, message = fault
    return f"{path}: {message}" if path else message


def suggestion(word: str, known: Iterator[str] | list[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _directory() -> Traversable:
    """Where the schemas lie; in no file system where the package is read from a zip file."""
    from importlib.resources import files

    packaged = files("aorta_collectors") / "schemas"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "schemas"


class Validator:
    """Checks values against one packaged schema; the others can be referred to.

    Args:
        name: Of the schema. Raises FileNotFoundError for an unknown one.
    """

    def __init__(self, name: str) -> None:
        schema, others = load_schema(name), [load_schema(other) for other in schema_names()]
        self._bulk = BulkSchema(schema, others)
        self._plain = PlainValidator(schema, others)

    def fits(self, values: Sequence[Any]) -> bool:
        """True only if every one of `values` is without a fault. Where it is False, `iter_errors` knows."""
        return self._bulk.fits(values)

    def iter_errors(self, value: Any) -> Iterator[Any]:
        """The faults of one value."""
        return iter(()) if self.fits((value,)) else self._plain.iter_errors(value)


@functools.cache
def validator(name: str) -> Validator:
    """The validator of a packaged schema. There is one for each, since verifying a run asks for it at each file."""
    return Validator(name)


def _path(parts: Any) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def _message(error: Any) -> str:
    """One sentence on what is allowed and what was found."""
    schema, got = error.schema, error.instance
    if "errorMessage" in schema and error.validator != "additionalProperties":
        return str(schema["errorMessage"])
    shown = json.dumps(got, default=str)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    match error.validator:
        case "additionalProperties":
            known = list(schema.get("properties", {}))
            unknown = sorted(set(got) - set(known))
            hint = suggestion(unknown[0], known) or "; allowed: " + ", ".join(known)
            return f"unknown key {unknown[0]}{hint}"
        case "type" | "minimum" | "exclusiveMinimum":
            return f"must be {_describe(schema)}, got {shown}"
        case "enum":
            words = [str(item) for item in error.validator_value]
            hint = suggestion(got, words) if isinstance(got, str) else ""
            return f"must be one of {', '.join(words)}, got {shown}{hint}"
        case "required":
            missing = [key for key in error.validator_value if key not in got]
            return f"{missing[0]} is missing"
        case "minItems":
            return "must not be empty"
        case "minLength":
            return "must not be empty"
        case "pattern":
            return f"must not be blank, got {shown}"
        case "minProperties":
            return f"must not be empty; allowed: {', '.join(schema.get('properties', {}))}"
    return str(error.message)


def _describe(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type")
    noun = {
        "integer": "an integer",
        "number": "a number",
        "boolean": "true or false",
        "string": "a string",
        "array": "a list",
        "object": "an object",
    }
    names = [noun.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds or [])]
    text = " or ".join(names) or "a value"
    if "minimum" in schema:
        text += f" >= {schema['minimum']}"
    if "exclusiveMinimum" in schema:
        text += f" > {schema['exclusiveMinimum']}"
    return text


def _non_finite(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """JSON text may hold NaN and Infinity for Python's parser; no schema can say that they are not numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _non_finite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _non_finite(item, f"{path}[{index}]")
