"""The collect: layer_numerics block: what is accepted, and the exact words of what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aorta_collectors.api import Capture, Launch
from aorta_collectors.errors import OptionsError
from aorta_collectors.layer_numerics.collector import LayerNumerics
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.options import Options
from aorta_collectors.schema_check import load_schema

COLLECTOR = LayerNumerics()
PROPERTIES: dict[str, Any] = load_schema("layer_numerics.options")["properties"]
CHANNELS = "act, input, igrad, weight, bias, wgrad, bgrad"
NATIVE_ONLY = [name for name, schema in PROPERTIES.items() if schema.get("x-frontend") == "native"]
REFUSAL = "frontend: aorta is the stock logger, which does not have it; leave it out, or set frontend: native"
# A value of each type that is no default, and the switches that some options need beside them.
TEXTS = {"boolean": "1", "integer": "7", "number": "0.5", "array": "weight", "string": "a:0:1"}
NEEDS = {
    **dict.fromkeys(
        ("NANLOG_STAGE_READS", "NANLOG_TRACK_ATTR", "NANLOG_TRACK_EVERY_LAYER", "NANLOG_SPARSE"), ("NANLOG_PIPELINE",)
    ),
    "NANLOG_TRACK_LAYER_STRIDE": ("NANLOG_PIPELINE", "NANLOG_TRACK_EVERY_LAYER"),
    "NANLOG_SPARSE_HEAVY": ("NANLOG_PIPELINE", "NANLOG_SPARSE"),
}


def error(raw: dict[str, str]) -> str:
    with pytest.raises(OptionsError) as caught:
        COLLECTOR.validate(raw)
    return str(caught.value)


class TestAccepted:
    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("frontend", "native", "native"),
            ("frontend", "aorta", "aorta"),
            ("on_missing", "warn", "warn"),
            ("NANLOG_SPEC", '{"sample_every": 2}', {"sample_every": 2}),
            ("NANLOG_CHANNELS", "act, wgrad,", ["act", "wgrad"]),
            ("NANLOG_WATCH_NAMES", "encoder.0,head", ["encoder.0", "head"]),
            ("NANLOG_WATCH_NAMES", "", []),
            ("NANLOG_WATCH_TYPES", "Linear,MLP", ["Linear", "MLP"]),
            ("NANLOG_WATCH_STRIDE", "4", 4),
            ("NANLOG_PRE_CONTEXT", " 10 ", 10),
            ("NANLOG_SAMPLE_EVERY", "+1", 1),
            ("NANLOG_HUGE_THRESHOLD", "1e6", 1e6),
            ("NANLOG_MAX_RECORDS", "0", 0),
            ("NANLOG_MAX_PARAM_NUMEL", "0", 0),
            ("NANLOG_STOP_ON_FIRST", "1", True),
            ("NANLOG_VERBOSE", "0", False),
            ("NANLOG_ORIGIN", "1", True),
            ("NANLOG_HUGE_HEADROOM", "2", 2.0),
            ("NANLOG_FLUSH_SEC", "0.5", 0.5),
            ("NANLOG_BAD_VALUES", "1", True),
            ("NANLOG_ADDR", "1", True),
            ("NANLOG_LOCATE", "1", True),
            ("NANLOG_DUMP_TENSOR", "1", True),
            ("NANLOG_ALLOC_SNAPSHOT", "1", True),
            ("NANLOG_PIPELINE", "1", True),
            ("NANLOG_PIPELINE_OFF_FOLLOW", "1", True),
            ("NANLOG_STAGE_READS", "1", True),
            ("NANLOG_TRACK_ATTR", "a, b", ["a", "b"]),
            ("NANLOG_TRACK_MAX", "3", 3),
            ("NANLOG_TRACK_EVERY_LAYER", "1", True),
            ("NANLOG_TRACK_LAYER_STRIDE", "5", 5),
            ("NANLOG_BOUNDS", "std::emb:0:60;b:-inf:1", "std::emb:0:60;b:-inf:1"),
            ("NANLOG_BOUNDS", "", ""),
            ("NANLOG_BOUND_LO", "-1.5", -1.5),
            ("NANLOG_BOUND_HI", "60", 60.0),
            ("NANLOG_SPARSE", "1", True),
        ],
    )
    def test_text_is_decoded_to_the_type_of_the_schema(self, name: str, text: str, value: object) -> None:
        options = COLLECTOR.validate({name: text})
        assert dict(options.values) == {name: value}
        assert dict(options.raw) == {name: text}

    def test_no_block_and_an_empty_one_mean_the_defaults(self) -> None:
        for raw in (None, {}):
            options = COLLECTOR.validate(raw)
            assert (dict(options.raw), dict(options.values), options.on_missing) == ({}, {}, "error")

    def test_on_missing_is_error_unless_the_recipe_says_warn(self) -> None:
        assert COLLECTOR.validate({"on_missing": "error"}).on_missing == "error"
        assert COLLECTOR.validate({"on_missing": "warn"}).on_missing == "warn"

    def test_options_are_frozen(self) -> None:
        raw = {"NANLOG_SAMPLE_EVERY": "1"}
        options = COLLECTOR.validate(raw)
        raw["NANLOG_SAMPLE_EVERY"] = "2"
        assert options.raw["NANLOG_SAMPLE_EVERY"] == "1"
        with pytest.raises(TypeError):
            options.values["x"] = 1  # type: ignore[index]

    @pytest.mark.parametrize("name", NATIVE_ONLY)
    def test_options_of_the_native_engine_are_refused_for_the_stock_logger(self, name: str) -> None:
        text = TEXTS[PROPERTIES[name]["type"]]
        assert error({name: text, "frontend": "aorta"}) == f"{name}: {REFUSAL}"
        assert COLLECTOR.validate({name: text}).raw[name] == text

    def test_the_native_engine_alone_has_these(self) -> None:
        assert NATIVE_ONLY == ["NANLOG_HUGE_HEADROOM", "NANLOG_ORIGIN", "NANLOG_FLUSH_SEC", "NANLOG_MOMENTS"]
        off = {"NANLOG_ORIGIN": "0", "frontend": "aorta"}
        assert COLLECTOR.validate(off).values["NANLOG_ORIGIN"] is False

    @pytest.mark.parametrize("name", [name for name in PROPERTIES if name not in ("frontend", "on_missing")])
    def test_every_option_reaches_the_engine(self, name: str, tmp_path: Path) -> None:
        """Accepted in a sweep, hence in force, without a word on stderr: `Config` sees each of them."""
        special = {"NANLOG_SPEC": '{"sample_every": 3}', "NANLOG_SPEC_FILE": str(tmp_path / "spec.json")}
        (tmp_path / "spec.json").write_text('{"sample_every": 3}')
        base = dict.fromkeys(NEEDS.get(name, ()), "1")
        text = special.get(name) or TEXTS[PROPERTIES[name]["type"]]
        found = Config.from_environment(COLLECTOR.validate({**base, name: text}).raw)
        assert found != Config.from_environment(base)
        assert found.warnings == ()

    def test_every_option_is_in_the_environment_of_a_command_and_no_other_variable_is(self) -> None:
        launch = COLLECTOR.plan(
            Launch(("python", "train.py")), COLLECTOR.validate({"NANLOG_ADDR": "1"}), Capture(Path("/out"), "run")
        )
        env = dict(launch.env)
        assert {name for name, value in env.items() if name in PROPERTIES and value is not None} == {"NANLOG_ADDR"}
        assert set(env) >= {name for name in PROPERTIES if name.startswith("NANLOG_")}


class TestRefused:
    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (
                {"NANLOG_SAMPLE_EVRY": "1"},
                "NANLOG_SAMPLE_EVRY: unknown option; did you mean NANLOG_SAMPLE_EVERY?",
            ),
            ({"front_end": "native"}, "front_end: unknown option; did you mean frontend?"),
            ({"zzz": "1"}, "zzz: unknown option; allowed: " + ", ".join(sorted(PROPERTIES))),
            ({"NANLOG_DIR": "out"}, "NANLOG_DIR: the sweep sets it, one directory a trial; remove it"),
            ({"frontend": "nativ"}, 'frontend: must be one of native, aorta, got "nativ"; did you mean native?'),
            ({"on_missing": "ignore"}, 'on_missing: must be one of error, warn, got "ignore"'),
            ({"NANLOG_SAMPLE_EVERY": "0"}, "NANLOG_SAMPLE_EVERY: must be an integer >= 1, got 0"),
            ({"NANLOG_SAMPLE_EVERY": "ten"}, 'NANLOG_SAMPLE_EVERY: must be an integer >= 1, got "ten"'),
            ({"NANLOG_SAMPLE_EVERY": "1.5"}, 'NANLOG_SAMPLE_EVERY: must be an integer >= 1, got "1.5"'),
            ({"NANLOG_SAMPLE_EVERY": ""}, 'NANLOG_SAMPLE_EVERY: must be an integer >= 1, got ""'),
            ({"NANLOG_PRE_CONTEXT": "-1"}, "NANLOG_PRE_CONTEXT: must be an integer >= 0, got -1"),
            ({"NANLOG_WATCH_STRIDE": "0"}, "NANLOG_WATCH_STRIDE: must be an integer >= 1, got 0"),
            ({"NANLOG_MAX_RECORDS": "-1"}, "NANLOG_MAX_RECORDS: must be an integer >= 0, got -1"),
            ({"NANLOG_MAX_PARAM_NUMEL": "1e6"}, 'NANLOG_MAX_PARAM_NUMEL: must be an integer >= 0, got "1e6"'),
            ({"NANLOG_HUGE_THRESHOLD": "0"}, "NANLOG_HUGE_THRESHOLD: must be a number > 0, got 0.0"),
            ({"NANLOG_HUGE_THRESHOLD": "inf"}, 'NANLOG_HUGE_THRESHOLD: must be a number > 0, got "inf"'),
            ({"NANLOG_HUGE_THRESHOLD": "nan"}, 'NANLOG_HUGE_THRESHOLD: must be a number > 0, got "nan"'),
            (
                {"NANLOG_SAMPLE_EVERY": "9007199254740992"},
                "NANLOG_SAMPLE_EVERY: 9007199254740992 is greater than the maximum of 9007199254740991",
            ),
            ({"NANLOG_HUGE_HEADROOM": "-1"}, "NANLOG_HUGE_HEADROOM: must be a number >= 0, got -1.0"),
            ({"NANLOG_FLUSH_SEC": "-1"}, "NANLOG_FLUSH_SEC: must be a number >= 0, got -1.0"),
            ({"NANLOG_TRACK_MAX": "0"}, "NANLOG_TRACK_MAX: must be an integer >= 1, got 0"),
            ({"NANLOG_TRACK_LAYER_STRIDE": "0"}, "NANLOG_TRACK_LAYER_STRIDE: must be an integer >= 1, got 0"),
            ({"NANLOG_TRACK_ATTR": " "}, "NANLOG_TRACK_ATTR: must not be empty"),
            ({"NANLOG_PIPELINE": "yes"}, 'NANLOG_PIPELINE: must be "1" (on) or "0" (off), got "yes"'),
            ({"NANLOG_ORIGIN": "true"}, 'NANLOG_ORIGIN: must be "1" (on) or "0" (off), got "true"'),
            ({"NANLOG_BOUND_LO": "low"}, 'NANLOG_BOUND_LO: must be a number, got "low"'),
            ({"NANLOG_BOUND_HI": "nan"}, 'NANLOG_BOUND_HI: must be a number, got "nan"'),
            (
                {"NANLOG_BOUND_LO": "2", "NANLOG_BOUND_HI": "1"},
                "NANLOG_BOUND_LO: must not be above NANLOG_BOUND_HI, got 2.0 and 1.0",
            ),
            (
                {"NANLOG_BOUNDS": "a:0:1;b:0"},
                'NANLOG_BOUNDS: must be substring:lo:hi with two numbers, got "b:0"',
            ),
            (
                {"NANLOG_BOUNDS": "a:0:1;b:nan:1"},
                'NANLOG_BOUNDS: must be substring:lo:hi with two numbers, got "b:nan:1"',
            ),
            ({"NANLOG_BOUNDS": "a:1:0", "frontend": "aorta"}, 'NANLOG_BOUNDS: lo must not be above hi, got "a:1:0"'),
            (
                {"NANLOG_SPARSE_HEAVY": "1"},
                'NANLOG_SPARSE_HEAVY: needs NANLOG_SPARSE: "1", to whose records it adds',
            ),
            ({"NANLOG_STOP_ON_FIRST": "true"}, 'NANLOG_STOP_ON_FIRST: must be "1" (on) or "0" (off), got "true"'),
            ({"NANLOG_VERBOSE": ""}, 'NANLOG_VERBOSE: must be "1" (on) or "0" (off), got ""'),
            ({"NANLOG_CHANNELS": " , "}, "NANLOG_CHANNELS: must not be empty"),
            (
                {"NANLOG_CHANNELS": "act,wgrd"},
                f'NANLOG_CHANNELS[1]: must be one of {CHANNELS}, got "wgrd"; did you mean wgrad?',
            ),
            ({"NANLOG_SPEC": "{"}, None),
            ({"NANLOG_SPEC": "[]"}, "NANLOG_SPEC: must be an object, got []"),
            ({"NANLOG_SPEC": "null"}, "NANLOG_SPEC: must be an object, got null"),
            ({"NANLOG_SPEC": ""}, "NANLOG_SPEC: must be JSON text: Expecting value at line 1, column 1"),
            (
                {"NANLOG_SPEC": '{"watch":\n  [,]}'},
                "NANLOG_SPEC: must be JSON text: Expecting value at line 2, column 4",
            ),
            (
                {"NANLOG_SPEC": '{"sample_every": 1, "sample_every": 2}'},
                "NANLOG_SPEC: key sample_every is given twice",
            ),
            ({"NANLOG_SPEC_FILE": ""}, "NANLOG_SPEC_FILE: must not be empty"),
        ],
    )
    def test_the_error_says_where_what_and_what_is_allowed(self, raw: dict[str, str], message: str | None) -> None:
        found = error(raw)
        if message is None:
            assert found.startswith("NANLOG_SPEC: must be JSON text: Expecting property name")
            assert found.endswith("at line 1, column 2")
        else:
            assert found == message

    def test_the_error_can_be_placed_in_the_file_that_the_user_edits(self) -> None:
        with pytest.raises(OptionsError) as caught:
            COLLECTOR.validate({"NANLOG_SPEC": '{"watch": [{"tensors": ["out"]}]}'})
        placed = caught.value.below("recipe.collect.layer_numerics")
        assert str(placed).startswith("recipe.collect.layer_numerics.NANLOG_SPEC: watch[0].tensors[0]: must be one of")
        assert str(OptionsError("", "no").below("recipe.collect")) == "recipe.collect: no"

    def test_a_long_value_is_shown_shortened(self) -> None:
        found = error({"NANLOG_SAMPLE_EVERY": "x" * 500})
        assert found.endswith("...")
        assert len(found) < 200

    def test_the_stock_logger_cannot_watch_a_workload_in_process(self) -> None:
        COLLECTOR.check_in_process(COLLECTOR.validate({}))
        with pytest.raises(OptionsError, match="use frontend: native"):
            COLLECTOR.check_in_process(Options({}, {"frontend": "aorta"}))


class TestSpecFile:
    def test_a_file_is_checked_like_an_inline_spec(self, tmp_path: Path) -> None:
        path = tmp_path / "spec.json"
        path.write_text('{"watch": [{"tensors": ["output"], "strid": 2}]}')
        message = "NANLOG_SPEC_FILE: watch[0]: unknown key strid; did you mean stride?"
        assert error({"NANLOG_SPEC_FILE": str(path)}) == message
        path.write_text('{"watch": [{"tensors": ["output"], "stride": 2}]}')
        assert COLLECTOR.validate({"NANLOG_SPEC_FILE": str(path)}).values["NANLOG_SPEC_FILE"] == str(path)

    def test_a_file_for_the_native_engine_is_refused_for_the_stock_logger(self, tmp_path: Path) -> None:
        path = tmp_path / "spec.json"
        path.write_text('{"follow": [{"tensor": "x"}], "origin": true}')
        COLLECTOR.validate({"NANLOG_SPEC_FILE": str(path)})
        message = f"NANLOG_SPEC_FILE: origin: {REFUSAL}"
        assert error({"NANLOG_SPEC_FILE": str(path), "frontend": "aorta"}) == message

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
        for name in ("missing.json", "binary", "."):
            assert error({"NANLOG_SPEC_FILE": f"{tmp_path}/{name}"}).startswith(
                f"NANLOG_SPEC_FILE: {tmp_path}/{name} cannot be read ("
            )

    def test_a_file_that_is_not_json_is_refused_with_the_position(self, tmp_path: Path) -> None:
        path = tmp_path / "spec.json"
        path.write_text('{"a": 1,\n "a": 2}')
        assert error({"NANLOG_SPEC_FILE": str(path)}) == "NANLOG_SPEC_FILE: key a is given twice"
        path.write_text("{}\n{}")
        found = error({"NANLOG_SPEC_FILE": str(path)})
        assert found == "NANLOG_SPEC_FILE: must be JSON text: Extra data at line 2, column 1"


SPEC_WORDS = [
    *("watch", "follow", "scope", "tensors", "tensor", "stride", "names", "types", "bounds", "stages", "pipeline"),
    *("stage_reads", "sample_every", "pre_context", "diagnostics", "origin", "odd"),
]
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(SPEC_WORDS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
raw_blocks = st.dictionaries(
    st.one_of(st.sampled_from(sorted(PROPERTIES)), st.text(max_size=8)),
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(
            ["0", "1", "", "act", "native", "aorta", "warn", "1e5", "nan", "{}", "[]", "a\0b", "a:0:1;b:1:0", "a:b"]
        ),
        st.integers().map(str),
        st.floats().map(str),
        json_values.map(json.dumps),
    ),
    max_size=4,
)


class TestNothingElseIsRaised:
    @settings(max_examples=400, deadline=None)
    @given(raw_blocks)
    def test_any_mapping_of_text_is_either_valid_or_an_options_error(self, raw: dict[str, str]) -> None:
        try:
            options = COLLECTOR.validate(raw)
        except OptionsError:
            return
        assert dict(options.raw) == raw
        assert set(options.values) == set(raw)

    @settings(max_examples=300, deadline=None)
    @given(json_values)
    @example({"watch": []})
    @example({"watch": [{"tensors": ["grad"]}], "sample_every": 1.0})
    def test_any_json_as_a_spec_is_either_in_force_or_an_options_error(self, spec: object) -> None:
        text = json.dumps(spec)
        try:
            COLLECTOR.validate({"NANLOG_SPEC": text})
        except OptionsError:
            assert Config.from_environment({"NANLOG_SPEC": text}).spec_error
        else:
            assert Config.from_environment({"NANLOG_SPEC": text}).spec_error is None

    @pytest.mark.parametrize(
        "raw",
        [
            {"NANLOG_SAMPLE_EVERY": "9" * 5000},
            {"NANLOG_SPEC": '{"sample_every": ' + "9" * 5000 + "}"},
            {"NANLOG_SPEC": "[" * 100_000},
            {"NANLOG_SPEC": '{"watch":' * 100_000},
            {"NANLOG_SPEC": '{"watch": ' + "[" * 700 + "]" * 700 + "}"},
            {"NANLOG_SPEC_FILE": "a\0b"},
            {"NANLOG_SPEC_FILE": "\ud800"},
            {"NANLOG_SPEC_FILE": "x" * 5000},
        ],
        ids=[
            "long integer",
            "long integer in JSON",
            "deep list",
            "deep object",
            "deep spec",
            "NUL",
            "surrogate",
            "long",
        ],
    )
    def test_hostile_text_is_an_options_error_too(self, raw: dict[str, str]) -> None:
        with pytest.raises(OptionsError):
            COLLECTOR.validate(raw)
