"""A yes for many values at once is a yes of jsonschema for each of them, and it is given where records are as usual."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.bulk_schema import BulkSchema
from aorta_collectors.plain_schema import PlainValidator
from aorta_collectors.schema_check import first_fault, load_schema, validator

RECORD = "layer_numerics.record"
NORMAL: dict[str, Any] = json.loads(
    """
    {"type": "layer_step", "step": 1, "rank": 0, "host": "h", "pid": 7, "layer_name": "0", "direction": "fwd",
    "role": "act", "shape": [2, 4], "dtype": "torch.float32", "nan_count": 0, "inf_count": 0, "huge_count": 0,
    "finite_count": 8, "finite_abs_max": 1.5, "finite_max": 1.5, "finite_min": null, "numel": 8, "bad": false,
    "batch_id": null, "phase": "forward", "evaluation": true, "first_bad_value": "NaN"}
    """
)
scalars = st.sampled_from([None, True, False, -1, 0, 1, 1.0, 1.5, 2**70, -0.0, "", " ", "fwd", "layer_step", "x"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
keys = st.sampled_from([*load_schema(RECORD)["properties"], "other"])


@st.composite
def records(draw: st.DrawFn) -> Any:
    record: Any = copy.deepcopy(NORMAL)
    for _ in range(draw(st.integers(0, 2))):
        key = draw(keys)
        if draw(st.booleans()):
            record[key] = draw(values)
        else:
            record.pop(key, None)
    return draw(values) if draw(st.integers(0, 9)) == 0 else record


def jsonschema_takes(name: str, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(load_schema(name)).is_valid(value))


@settings(max_examples=300, deadline=None)
@given(st.lists(records(), max_size=5))
def test_a_yes_for_all_is_a_yes_for_each(many: list[Any]) -> None:
    alone = [jsonschema_takes(RECORD, record) for record in many]
    assert [first_fault(validator(RECORD), record) is None for record in many] == alone
    if validator(RECORD).fits(many):
        assert all(alone)
    # A number without a fraction that is written with one is the only thing that it is not sure of.
    elif all(alone):
        assert any(type(part) is float and part.is_integer() for record in many for part in _parts(record))


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for item in value.values() for part in _parts(item)]
    return [part for item in value for part in _parts(item)] if isinstance(value, list) else [value]


def test_records_as_they_are_written_fit() -> None:
    assert validator(RECORD).fits([NORMAL, {**NORMAL, "param_name": "weight"}] * 1000)
    assert validator(RECORD).fits([])


@pytest.mark.parametrize("place", [0, 999, 1999])
def test_one_among_many_is_not_missed(place: int) -> None:
    many = [dict(NORMAL) for _ in range(2000)]
    many[place]["nan_count"] = -1
    assert not validator(RECORD).fits(many)


SMALL: list[dict[str, Any]] = [
    {"type": ["integer", "null"], "minimum": 1, "maximum": 2},
    {"type": "number", "exclusiveMinimum": 0},
    {"enum": ["a", None, 1]},
    {"const": 1},
    {"const": {"a": [1]}},
    {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "minLength": 1, "pattern": "[a-x]"}},
    {"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer"}},
    {
        "properties": {"a": {"$ref": "#/$defs/inner"}},
        "additionalProperties": False,
        "$defs": {"inner": {"type": "null"}},
    },
    {"$id": "urn:self", "properties": {"a": {"$ref": "urn:self"}, "b": {"type": "boolean"}}},
    {"allOf": [{"required": ["a"]}, {"properties": {"b": {"minimum": 0}}}]},
    {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SMALL), st.lists(values, max_size=4))
def test_so_is_it_for_each_keyword_and_our_own_validator_agrees(schema: dict[str, Any], many: list[Any]) -> None:
    others = [schema] if "$id" in schema else []
    theirs = jsonschema.Draft202012Validator(schema)
    plain = PlainValidator(schema, others)
    for value in many:
        assert (next(plain.iter_errors(value), None) is None) == theirs.is_valid(value)
    if BulkSchema(schema, others).fits(many):
        assert all(theirs.is_valid(value) for value in many)


def test_what_is_not_known_makes_nothing_sure() -> None:
    assert not BulkSchema({"uniqueItems": True}, []).fits([[1]])
