"""A value has the first fault that jsonschema finds, in the same words."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from aorta_collectors.plain_schema import KEYWORDS, PlainValidator
from aorta_collectors.schema_check import first_fault, load_schema, schema_names

PATTERNS: dict[str, Any] = json.loads((Path(__file__).parent / "patterns.json").read_text())
SCHEMAS = [load_schema(name) for name in schema_names()]
#: Keywords that only describe, or that `schema_check` reads itself.
DESCRIBE = {"$schema", "$id", "$defs", "title", "description", "default", "errorMessage", "x-frontend", "x-native"}

words = st.sampled_from(["Linear", "output", "grad", "addr", "", " ", "embedding_features", "outptu", "oops"])
scalars = st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([1.0, 1.5, 2**53, 1e300]) | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2))


REGISTRY: Any = Registry().with_resources([(schema["$id"], DRAFT202012.create_resource(schema)) for schema in SCHEMAS])


def plain(name: str) -> PlainValidator:
    return PlainValidator(load_schema(name), SCHEMAS)


def theirs(name: str) -> Any:
    return jsonschema.Draft202012Validator(load_schema(name), registry=REGISTRY)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every part of a value."""
    if isinstance(value, dict):
        return [place for key, part in value.items() for place in [(value, key), *_places(part)]]
    if isinstance(value, list):
        return [place for index, part in enumerate(value) for place in [(value, index), *_places(part)]]
    return []


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A common spec in which some parts are others, missing, or have company."""
    spec: Any = copy.deepcopy(draw(st.sampled_from(list(PATTERNS.values()))))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(spec)
        if not places:
            return draw(values)
        container, key = draw(st.sampled_from(places))
        kind = draw(st.sampled_from(["replace", "remove", "add"]))
        if kind == "replace":
            container[key] = draw(values)
        elif kind == "remove":
            del container[key]
        elif isinstance(container, dict):
            added = st.sampled_from(["stages", "stride", "bounds", "pipeline", "stage_reads", "scope", "origin", "zzz"])
            container[draw(added)] = draw(values | st.booleans() | st.just([0, 1]))
        else:
            container.insert(0, draw(values))
    return spec


@settings(max_examples=400, deadline=None)
@given(spoilt() | values)
def test_a_spec_has_the_first_fault_that_jsonschema_finds(spec: Any) -> None:
    assert first_fault(plain("layer_numerics.spec"), spec) == first_fault(theirs("layer_numerics.spec"), spec)


@pytest.mark.parametrize("name", PATTERNS)
def test_so_has_a_common_one_in_which_one_part_is_another(name: str) -> None:
    ours, other_way = plain("layer_numerics.spec"), theirs("layer_numerics.spec")
    others = [None, True, False, -1, 0, 1, 1.0, 1.5, 2**53, "", " ", "output", "Outptu", [], [0], {}, {"names": ["a"]}]
    for index in range(len(_places(PATTERNS[name]))):
        for other in others:
            spec = copy.deepcopy(PATTERNS[name])
            container, key = _places(spec)[index]
            container[key] = other
            assert first_fault(ours, spec) == first_fault(other_way, spec), spec


@pytest.mark.parametrize("name", PATTERNS)
def test_a_common_spec_has_none(name: str) -> None:
    assert first_fault(plain("layer_numerics.spec"), PATTERNS[name]) is None


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(load_schema("layer_numerics.options")["properties"])), values | spoilt()))
def test_so_have_options_which_refer_to_another_schema(options: dict[str, Any]) -> None:
    name = "layer_numerics.options"
    assert first_fault(plain(name), options) == first_fault(theirs(name), options)


def test_every_keyword_of_the_packaged_schemas_is_known() -> None:
    used: set[str] = set()

    def walk(schema: Any) -> None:
        if isinstance(schema, list):
            for part in schema:
                walk(part)
        elif isinstance(schema, dict):
            used.update(schema)
            for keyword, rule in schema.items():
                if keyword in ("properties", "$defs"):
                    walk(list(rule.values()))
                elif keyword not in ("enum", "const", "default"):
                    walk(rule)

    walk(SCHEMAS)
    assert used == KEYWORDS | DESCRIBE
