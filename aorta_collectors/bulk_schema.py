"""Whether many values all fit one JSON Schema, told field by field over all of them at once.

jsonschema takes some 50 us for a record, and the evidence of one sweep is millions of them. Records of one file are
alike, so that a thousand values of one field are looked at as one set of types and one minimum. The answer is yes or
"not sure": what is wrong with which value is for a validator to say, that looks at them one by one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from aorta_collectors.plain_schema import DESCRIBING, referred

#: True only if each of the values fits.
_Test = Callable[[Sequence[Any]], bool]

_TYPES: Mapping[str, frozenset[type]] = {
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),  # 1.0 is one too, and is not sure
    "number": frozenset({int, float}),
    "null": frozenset({type(None)}),
    "string": frozenset({str}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}


class BulkSchema:
    """A schema, made ready once.

    Args:
        schema: What values are checked against. A keyword that is not known here makes nothing sure.
        others: Schemas that it may refer to by their $id.
    """

    def __init__(self, schema: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> None:
        self._by_id = {other["$id"]: other for other in others}
        self._ready: dict[int, _Test] = {}
        self._test = self._compiled(schema, schema)

    def fits(self, values: Sequence[Any]) -> bool:
        """True only if every one of `values`, as decoded from JSON, fits."""
        return self._test(values)

    def _compiled(self, schema: Mapping[str, Any], root: Mapping[str, Any]) -> _Test:
        tests: list[_Test] = []
        for keyword, rule in schema.items():
            match keyword:
                case "$ref":
                    tests.append(self._reference(rule, root))
                case "allOf":
                    tests += [self._compiled(part, root) for part in rule]
                case "items":
                    tests.append(_items(self._compiled(rule, root)))
                case "properties" | "required" | "additionalProperties":
                    pass  # below, together
                case _ if keyword not in DESCRIBING:
                    tests.append(_simple(keyword, rule))
        if not schema.keys().isdisjoint(("properties", "required", "additionalProperties")):
            tests.append(self._fields(schema, root))
        return _all(tests)

    def _reference(self, rule: str, root: Mapping[str, Any]) -> _Test:
        target, where = referred(rule, root, self._by_id)

        def fits(values: Sequence[Any]) -> bool:
            # Made ready when first used: a schema may refer to what it is part of.
            if id(target) not in self._ready:
                self._ready[id(target)] = self._compiled(target, where)
            return self._ready[id(target)](values)

        return fits

    def _fields(self, schema: Mapping[str, Any], root: Mapping[str, Any]) -> _Test:
        known = {key: self._compiled(part, root) for key, part in schema.get("properties", {}).items()}
        required = frozenset(schema.get("required", ()))
        rest = schema.get("additionalProperties", True)
        other = self._compiled(rest, root) if isinstance(rest, Mapping) else (_anything if rest else _nothing)

        def fits(values: Sequence[Any]) -> bool:
            alike = defaultdict(list)
            for value in values:
                if type(value) is dict:
                    alike[tuple(value)].append(value)
            for keys, members in alike.items():
                if not required.issubset(keys):
                    return False
                for key, column in zip(keys, zip(*map(dict.values, members), strict=True), strict=True):
                    if not known.get(key, other)(column):
                        return False
            return True

        return fits


def _all(tests: list[_Test]) -> _Test:
    if not tests:
        return _anything
    if len(tests) == 1:
        return tests[0]

    def fits(values: Sequence[Any]) -> bool:
        for test in tests:  # noqa: SIM110  (a generator costs more than the tests)
            if not test(values):
                return False
        return True

    return fits


def _anything(values: Sequence[Any]) -> bool:
    return True


def _nothing(values: Sequence[Any]) -> bool:
    return not values


def _items(test: _Test) -> _Test:
    def fits(values: Sequence[Any]) -> bool:
        return test(list(chain.from_iterable(value for value in values if type(value) is list)))

    return fits


def _simple(keyword: str, rule: Any) -> _Test:
    """The test of a keyword that looks at nothing but the value itself."""
    match keyword:
        case "type":
            return _of_type(frozenset().union(*(_TYPES[kind] for kind in ([rule] if isinstance(rule, str) else rule))))
        case "const":
            return _one_of([rule])
        case "enum":
            return _one_of(rule)
        case "minimum":
            return _of_numbers(min, lambda least: least >= rule)
        case "exclusiveMinimum":
            return _of_numbers(min, lambda least: least > rule)
        case "maximum":
            return _of_numbers(max, lambda most: most <= rule)
        case "minLength":
            return lambda values: all(len(value) >= rule for value in values if type(value) is str)
        case "pattern":
            search = re.compile(rule).search
            return lambda values: all(map(search, [value for value in values if type(value) is str]))
        case "minItems":
            return lambda values: all(len(value) >= rule for value in values if type(value) is list)
        case "maxItems":
            return lambda values: all(len(value) <= rule for value in values if type(value) is list)
        case "minProperties":
            return lambda values: all(len(value) >= rule for value in values if type(value) is dict)
    return _nothing


def _of_type(allowed: frozenset[type]) -> _Test:
    return lambda values: allowed.issuperset(map(type, values))


def _one_of(choices: Sequence[Any]) -> _Test:
    # Told apart by type as well: JSON's true is not 1.
    allowed = {(type(choice), choice) for choice in choices if type(choice) in (str, int, bool, type(None))}
    texts = frozenset(choices) if all(type(choice) is str for choice in choices) else frozenset()

    def fits(values: Sequence[Any]) -> bool:
        try:
            return texts.issuperset(values) or allowed.issuperset(zip(map(type, values), values, strict=True))
        except TypeError:  # a list or an object
            return False

    return fits


def _of_numbers(outermost: Callable[..., Any], holds: Callable[[Any], bool]) -> _Test:
    def fits(values: Sequence[Any]) -> bool:
        try:
            return not values or bool(holds(outermost(values)))
        except TypeError:  # not all are numbers
            numbers = [value for value in values if type(value) in (int, float)]
            return not numbers or bool(holds(outermost(numbers)))

    return fits
