"""NANLOG_SPEC: each rule with the words of its error, and the schemas themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aorta_collectors.errors import OptionsError
from aorta_collectors.layer_numerics.collector import LayerNumerics
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.support import check_spec
from aorta_collectors.schema_check import first_error, load_schema, schema_names
from tests.options.test_options import REFUSAL

PATTERNS: dict[str, Any] = json.loads((Path(__file__).parent / "patterns.json").read_text())
TENSORS = "input, output, weight, bias, igrad, grad"
DIAGNOSTICS = "addr, locate, bad_values, moments, dump_tensor, alloc_snapshot"
SCOPE = {"names": ["head"]}


def error(spec: Any, *, native: bool = True) -> str:
    with pytest.raises(OptionsError) as caught:
        check_spec(spec, native=native)
    return str(caught.value)


def follow(**keys: Any) -> dict[str, Any]:
    return {"follow": [{"tensor": "features", **keys}]}


def watch(**keys: Any) -> dict[str, Any]:
    return {"watch": [{"tensors": ["output"], **keys}]}


class TestPatterns:
    @pytest.mark.parametrize("name", PATTERNS)
    def test_a_common_pattern_is_valid_for_both_loggers_and_in_force_in_ours(self, name: str) -> None:
        spec, text = PATTERNS[name], json.dumps(PATTERNS[name])
        LayerNumerics().validate({"NANLOG_SPEC": text, "frontend": "aorta"})
        config = Config.from_environment(LayerNumerics().validate({"NANLOG_SPEC": text}).raw)
        assert config.spec_error is None
        assert len(config.groups) == len(spec.get("watch", []))
        assert [entry.tensor for entry in config.follows] == [entry["tensor"] for entry in spec.get("follow", [])]
        assert config.diagnostics == set(spec.get("diagnostics", []))


class TestAccepted:
    @pytest.mark.parametrize(
        "spec",
        [
            follow(),
            follow(stages=True),
            follow(stages=True, scope=SCOPE, stride=2),
            follow(stages=False, scope=SCOPE),
            follow(pipeline=False, scope=SCOPE),
            follow(pipeline=False, stages=False, stage_reads=False, scope=SCOPE),
            follow(pipeline=True, stage_reads=True),
            follow(bounds=[-1, 1.5]),
            watch(scope={"types": ["MLP"]}, stride=1),
            watch(scope={"names": ["a"], "types": ["B"]}),
            {"sample_every": 1},
            {"pre_context": 0},
            {"watch": []},
            follow(bounds=[1, 1]),
            follow(bounds=[-1e308, 1e308]),
            {"diagnostics": []},
            {"follow": []},
            {"sample_every": 2**53 - 1},
        ],
    )
    def test_every_legal_combination(self, spec: dict[str, Any]) -> None:
        check_spec(spec)
        check_spec(spec, native=False)

    def test_origin_is_the_native_engines_only(self) -> None:
        check_spec({"origin": True})
        assert error({"origin": True}, native=False) == f"origin: {REFUSAL}"
        check_spec({"origin": False}, native=False)

    def test_so_are_moments(self) -> None:
        check_spec({"diagnostics": ["addr", "moments"]})
        assert error({"diagnostics": ["addr", "moments"]}, native=False) == f"diagnostics[1]: {REFUSAL}"
        check_spec({"diagnostics": ["addr"]}, native=False)


class TestRefused:
    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ({}, "must not be empty; allowed: watch, follow, sample_every, pre_context, diagnostics, origin"),
            ([], "must be an object, got []"),
            ({"wach": []}, "unknown key wach; did you mean watch?"),
            ({"zzz": 1}, "unknown key zzz; allowed: watch, follow, sample_every, pre_context, diagnostics, origin"),
            ({"dir": "out"}, "unknown key dir; allowed: watch, follow, sample_every, pre_context, diagnostics, origin"),
            ({"sample_every": 0}, "sample_every: must be an integer >= 1, got 0"),
            ({"sample_every": "10"}, 'sample_every: must be an integer >= 1, got "10"'),
            ({"sample_every": True}, "sample_every: must be an integer >= 1, got true"),
            ({"sample_every": 1.5}, "sample_every: must be an integer >= 1, got 1.5"),
            ({"pre_context": -1}, "pre_context: must be an integer >= 0, got -1"),
            (
                {"pre_context": 2**53},
                "pre_context: 9007199254740992 is greater than the maximum of 9007199254740991",
            ),
            ({"sample_every": 1e300}, "sample_every: 1e+300 is greater than the maximum of 9007199254740991"),
            ({"origin": 1}, "origin: must be true or false, got 1"),
            ({"watch": {}}, "watch: must be a list, got {}"),
            ({"watch": None}, "watch: must be a list, got null"),
            ({"watch": ["Linear"]}, 'watch[0]: must be an object, got "Linear"'),
            ({"watch": [{"scope": SCOPE}]}, "watch[0]: tensors is missing"),
            ({"watch": [{"tensors": []}]}, "watch[0].tensors: must not be empty"),
            ({"watch": [{"tensors": "output"}]}, 'watch[0].tensors: must be a list, got "output"'),
            (
                {"watch": [{"tensors": ["output", "outptu"]}]},
                f'watch[0].tensors[1]: must be one of {TENSORS}, got "outptu"; did you mean output?',
            ),
            (watch(strides=2), "watch[0]: unknown key strides; did you mean stride?"),
            (watch(stride=0), "watch[0].stride: must be an integer >= 1, got 0"),
            (watch(scope={}), "watch[0].scope: must name modules by names, types, or both"),
            (watch(scope=[]), "watch[0].scope: must name modules by names, types, or both"),
            (watch(scope={"name": ["x"]}), "watch[0].scope: unknown key name; did you mean names?"),
            (watch(scope={"names": "x"}), 'watch[0].scope.names: must be a list, got "x"'),
            (watch(scope={"names": []}), "watch[0].scope.names: must not be empty"),
            (watch(scope={"types": [""]}), "watch[0].scope.types[0]: must not be empty"),
            (watch(scope={"types": [1]}), "watch[0].scope.types[0]: must be a string, got 1"),
            ({"follow": {}}, "follow: must be a list, got {}"),
            ({"follow": [{}]}, "follow[0]: tensor is missing"),
            ({"follow": [{"tensor": "x"}, {"tensor": " "}]}, "follow[1].tensor: must be a non-empty name"),
            ({"follow": [{"tensor": 1}]}, "follow[0].tensor: must be a non-empty name"),
            (
                follow(at="copy"),
                "follow[0]: unknown key at; allowed: tensor, stages, scope, stride, bounds, pipeline, stage_reads",
            ),
            (follow(stage=True), "follow[0]: unknown key stage; did you mean stages?"),
            (follow(stages=1), "follow[0].stages: must be true or false, got 1"),
            (follow(scope={"nmes": ["x"]}), "follow[0].scope: unknown key nmes; did you mean names?"),
            (follow(stride=2), "follow[0]: stride needs a scope that names the modules it counts"),
            (follow(stride=0, scope=SCOPE), "follow[0].stride: must be an integer >= 1, got 0"),
            (follow(stages=False), "follow[0]: captures nothing: set stages: true, a scope, or both"),
            (
                follow(pipeline=False),
                "follow[0]: pipeline: false needs a scope: without the stages, only modules are left to check at",
            ),
            (
                follow(pipeline=False, scope=SCOPE, stages=True),
                "follow[0].stages: pipeline: false excludes stages: true, since the stages are what it switches off",
            ),
            (
                follow(pipeline=False, scope=SCOPE, stage_reads=True),
                "follow[0].stage_reads: stage_reads: true needs pipeline: true, since it moves the reads at its stages",
            ),
            (follow(pipeline="false"), 'follow[0].pipeline: must be true or false, got "false"'),
            (follow(bounds=[0]), "follow[0].bounds: must be two finite numbers [lo, hi]"),
            (follow(bounds=[0, 1, 2]), "follow[0].bounds: must be two finite numbers [lo, hi]"),
            (follow(bounds="0:1"), "follow[0].bounds: must be two finite numbers [lo, hi]"),
            (follow(bounds=[0, "1"]), 'follow[0].bounds[1]: must be a number, got "1"'),
            (follow(bounds=[0, True]), "follow[0].bounds[1]: must be a number, got true"),
            (follow(bounds=[0, 10**400]), "follow[0].bounds[1]: must be a finite number"),
            (follow(bounds=[60, 0]), "follow[0].bounds: lo must not be above hi, got [60, 0]"),
            (
                {"follow": [{"tensor": "x"}, {"tensor": "y", "bounds": [0, -0.5]}]},
                "follow[1].bounds: lo must not be above hi, got [0, -0.5]",
            ),
            (follow(bounds=[float("nan"), 1]), "follow[0].bounds[0]: must be a finite number, got nan"),
            (follow(bounds=[0, float("inf")]), "follow[0].bounds[1]: must be a finite number, got inf"),
            ({"diagnostics": "addr"}, 'diagnostics: must be a list, got "addr"'),
            (
                {"diagnostics": ["adr"]},
                f'diagnostics[0]: must be one of {DIAGNOSTICS}, got "adr"; did you mean addr?',
            ),
        ],
    )
    def test_the_error_says_where_what_and_what_is_allowed(self, spec: Any, message: str) -> None:
        assert error(spec) == error(spec, native=False) == message
        assert Config.from_environment({"NANLOG_SPEC": json.dumps(spec)}).spec_error == message

    @pytest.mark.parametrize("words", [[" "], ["head", "\t"]])
    def test_a_name_of_spaces_names_no_module(self, words: list[str]) -> None:
        """The stock logger refuses it too: a list of non-empty strings."""
        for key in ("names", "types"):
            error(watch(scope={key: words}))

    def test_a_number_that_json_has_not_is_found_in_json_text(self) -> None:
        text = '{"follow": [{"tensor": "x", "bounds": [NaN, 1]}]}'
        with pytest.raises(OptionsError) as caught:
            LayerNumerics().validate({"NANLOG_SPEC": text})
        assert str(caught.value) == "NANLOG_SPEC: follow[0].bounds[0]: must be a finite number, got nan"


def properties_of(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each property of a schema and of those inside it, by path."""
    for name, inner in schema.get("properties", {}).items():
        # Properties of a condition have no meaning of their own.
        yield f"{path}.{name}", inner
        yield from properties_of(inner, f"{path}.{name}")
        yield from properties_of(inner.get("items", {}), f"{path}.{name}[]")
    for name, inner in schema.get("$defs", {}).items():
        yield from properties_of(inner, f"{path}#{name}")


#: Collectors whose options are those of their collect: block alone.
OTHERS = ("memory", "numerics", "tensors")


def described(inner: dict[str, Any], schema: dict[str, Any]) -> str:
    reference = str(inner.get("$ref", ""))
    found = schema["$defs"][reference.rsplit("/", 1)[1]] if reference.startswith("#/$defs/") else {}
    return str(inner.get("description", found.get("description", "")))


class TestSchemas:
    def test_the_schemas_are_those_of_the_design(self) -> None:
        assert schema_names() == sorted(
            [
                *(f"investigation.{kind}" for kind in ("journal", "metadata", "report", "run")),
                "layer_numerics.options",
                "layer_numerics.record",
                "layer_numerics.spec",
                "layer_numerics.summary",
                *(f"memory.{kind}" for kind in ("growth", "options", "point", "summary")),
                *(f"numerics.{kind}" for kind in ("escalation", "options", "span", "stats", "step", "summary")),
                "receipt",
                "script_workload",
                *(f"tensors.{kind}" for kind in ("observation", "options", "summary")),
            ]
        )

    @pytest.mark.parametrize("name", schema_names())
    def test_a_schema_is_a_valid_schema_of_2020_12(self, name: str) -> None:
        schema = load_schema(name)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["title"]
        assert schema["description"]

    @pytest.mark.parametrize(
        "name", ["layer_numerics.options", "layer_numerics.spec", *(f"{name}.options" for name in OTHERS)]
    )
    def test_every_property_that_a_user_writes_is_described(self, name: str) -> None:
        schema = load_schema(name)
        found = list(properties_of(schema, name))
        assert len(found) > 5
        assert [path for path, inner in found if not described(inner, schema)] == []

    @pytest.mark.parametrize(
        "name",
        [
            *("layer_numerics.record", "layer_numerics.summary", "receipt", "numerics.escalation", "numerics.span"),
            *("numerics.stats", "numerics.step", "numerics.summary", "tensors.observation", "tensors.summary"),
            *("memory.growth", "memory.point", "memory.summary", "investigation.metadata", "investigation.run"),
            "investigation.journal",
        ],
    )
    def test_every_property_of_an_artifact_is_described(self, name: str) -> None:
        schema = load_schema(name)
        assert [key for key, inner in schema["properties"].items() if not described(inner, schema)] == []
        assert set(schema["required"]) <= set(schema["properties"])

    @pytest.mark.parametrize(
        "name",
        ["layer_numerics.options", "layer_numerics.spec", "script_workload", *(f"{name}.options" for name in OTHERS)],
    )
    def test_a_default_is_valid_against_its_own_property(self, name: str) -> None:
        for path, inner in properties_of(load_schema(name), name):
            if "default" in inner:
                jsonschema.Draft202012Validator(inner).validate(inner["default"]), path

    def test_the_defaults_of_the_options_are_those_of_the_engine(self) -> None:
        texts = {list: ",".join, bool: lambda value: str(int(value))}
        raw = {
            name: texts.get(type(schema["default"]), str)(schema["default"])
            for name, schema in load_schema("layer_numerics.options")["properties"].items()
            if "default" in schema and name.startswith("NANLOG_")
        }
        assert Config.from_environment(LayerNumerics().validate(raw).raw) == Config()

    def test_no_object_of_a_users_text_lets_unknown_keys_pass(self) -> None:
        for name in ("layer_numerics.options", "layer_numerics.spec"):
            schema = load_schema(name)
            inner = [inner for _, inner in properties_of(schema, name)]
            inner += [item["items"] for item in inner if "items" in item]
            inner += [schema, *schema.get("$defs", {}).values()]
            for item in inner:
                if item.get("type") == "object" and "$ref" not in item:
                    assert item["additionalProperties"] is False

    def test_an_unknown_schema_is_an_error(self) -> None:
        with pytest.raises(FileNotFoundError):
            load_schema("nowhere")
        assert first_error("receipt", {})[1].endswith("is missing")  # type: ignore[index]
