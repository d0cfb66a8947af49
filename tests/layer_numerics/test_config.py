"""NANLOG_* variables as a value: defaults, what does not parse, and which spec wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.layer_numerics.config import Config, Group


def config(**variables: str) -> Config:
    return Config.from_environment({f"NANLOG_{name}": value for name, value in variables.items()})


def specified(spec: Any, **variables: str) -> Config:
    return config(SPEC=spec if isinstance(spec, str) else json.dumps(spec), **variables)


class TestFlatVariables:
    def test_defaults_are_those_of_the_reference_table(self) -> None:
        assert config() == Config()
        assert config().describe() == {
            "groups": [{"names": [], "types": ["Linear"], "channels": ["act", "igrad"], "stride": 1}],
            "sample_every": 50,
            "pre_context": 0,
            "huge_threshold": 1e10,
            "max_records": 200_000,
            "max_param_numel": 50_000_000,
            "stop_on_first": False,
        }
        assert config().spec_source is config().spec_error is None
        assert config().warnings == ()

    @pytest.mark.parametrize(
        ("name", "text", "attribute", "value"),
        [
            ("SAMPLE_EVERY", "1", "sample_every", 1),
            ("SAMPLE_EVERY", " 7 ", "sample_every", 7),
            ("PRE_CONTEXT", "10", "pre_context", 10),
            ("PRE_CONTEXT", "0", "pre_context", 0),
            ("HUGE_THRESHOLD", "1e4", "huge_threshold", 1e4),
            ("HUGE_THRESHOLD", "65504", "huge_threshold", 65504.0),
            ("MAX_RECORDS", "0", "max_records", 0),
            ("MAX_RECORDS", "12", "max_records", 12),
            ("MAX_PARAM_NUMEL", "5", "max_param_numel", 5),
            ("STOP_ON_FIRST", "1", "stop_on_first", True),
            ("STOP_ON_FIRST", "0", "stop_on_first", False),
            ("VERBOSE", "1", "verbose", True),
        ],
    )
    def test_a_variable_sets_its_value(self, name: str, text: str, attribute: str, value: Any) -> None:
        found = config(**{name: text})
        assert getattr(found, attribute) == value
        assert found.warnings == ()

    @pytest.mark.parametrize(
        ("variables", "group"),
        [
            ({"WATCH_TYPES": "MLP, Block ,"}, Group((), ("MLP", "Block"))),
            ({"WATCH_NAMES": "emb_proj,over"}, Group(("emb_proj", "over"), ())),
            ({"WATCH_NAMES": "over", "WATCH_TYPES": "Linear"}, Group(("over",), ("Linear",))),
            ({"WATCH_TYPES": ""}, Group((), ())),
            ({"CHANNELS": "input,wgrad"}, Group(channels=("input", "wgrad"))),
            ({"CHANNELS": ""}, Group(channels=())),
            ({"WATCH_STRIDE": "4"}, Group(stride=4)),
        ],
    )
    def test_the_watch_variables_make_one_group(self, variables: dict[str, str], group: Group) -> None:
        found = config(**variables)
        assert found.groups == (group,)
        assert found.warnings == ()

    @pytest.mark.parametrize("text", ["", "  "])
    @pytest.mark.parametrize("name", ["SAMPLE_EVERY", "PRE_CONTEXT", "HUGE_THRESHOLD", "MAX_RECORDS"])
    def test_an_empty_variable_is_as_good_as_none(self, name: str, text: str) -> None:
        assert config(**{name: text}) == Config()
        assert config(**{name: text}).warnings == ()

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("SAMPLE_EVERY", "0"),
            ("SAMPLE_EVERY", "-3"),
            ("SAMPLE_EVERY", "often"),
            ("SAMPLE_EVERY", "2.5"),
            ("SAMPLE_EVERY", "9" * 5000),
            ("PRE_CONTEXT", "-1"),
            ("PRE_CONTEXT", "ten"),
            ("HUGE_THRESHOLD", "0"),
            ("HUGE_THRESHOLD", "-1e10"),
            ("HUGE_THRESHOLD", "nan"),
            ("HUGE_THRESHOLD", "inf"),
            ("HUGE_THRESHOLD", "big"),
            ("MAX_RECORDS", "-1"),
            ("MAX_PARAM_NUMEL", "many"),
            ("WATCH_STRIDE", "0"),
            ("WATCH_STRIDE", "x"),
        ],
    )
    def test_a_malformed_value_warns_with_its_name_and_falls_back(self, name: str, text: str) -> None:
        found = config(**{name: text})
        assert found == Config()
        (warning,) = found.warnings
        assert warning.startswith(f"NANLOG_{name}: must be ")
        assert "using " in warning

    def test_unknown_channels_are_named_and_the_known_ones_stay(self) -> None:
        found = config(CHANNELS="act, output,wgrad,acts")
        assert found.channels == ["act", "wgrad"]
        (warning,) = found.warnings
        assert warning.startswith("NANLOG_CHANNELS: ['acts', 'output'] ignored")

    def test_each_malformed_variable_gets_its_own_warning(self) -> None:
        assert len(config(SAMPLE_EVERY="x", PRE_CONTEXT="y", CHANNELS="z").warnings) == 3


class TestSpec:
    @pytest.mark.parametrize(
        ("tensors", "channels"),
        [
            (["input"], ("input",)),
            (["output"], ("act",)),
            (["weight", "bias"], ("weight", "bias")),
            (["igrad"], ("igrad",)),
            (["grad"], ("igrad", "wgrad", "bgrad")),
            (["igrad", "grad", "output", "output"], ("igrad", "wgrad", "bgrad", "act")),
        ],
    )
    def test_tensors_are_channels(self, tensors: list[str], channels: tuple[str, ...]) -> None:
        found = specified({"watch": [{"scope": {"types": ["MLP"]}, "tensors": tensors}]})
        assert found.groups == (Group((), ("MLP",), channels),)

    def test_each_watch_entry_is_a_group_of_its_own(self) -> None:
        found = specified(
            {
                "watch": [
                    {"scope": {"types": ["MLP"], "names": ["emb"]}, "tensors": ["output"], "stride": 4},
                    {"tensors": ["igrad"]},
                ],
                "sample_every": 5,
                "pre_context": 3,
            }
        )
        assert found.groups == (Group(("emb",), ("MLP",), ("act",), 4), Group((), ("Linear",), ("igrad",)))
        assert (found.sample_every, found.pre_context) == (5, 3)
        assert (found.spec_source, found.spec_error, found.warnings) == ("NANLOG_SPEC", None, ())
        assert found.channels == ["act", "igrad"]
        assert found.types == ["MLP", "Linear"]
        assert found.names == ["emb"]

    def test_what_a_spec_does_not_say_is_said_by_the_flat_variables(self) -> None:
        found = specified({"sample_every": 5}, WATCH_NAMES="over", PRE_CONTEXT="4", HUGE_THRESHOLD="10")
        assert found.groups == (Group(("over",), ()),)
        assert (found.sample_every, found.pre_context, found.huge_threshold) == (5, 4, 10.0)

    def test_a_spec_wins_over_the_flat_variables(self) -> None:
        spec = {"watch": [{"scope": {"names": ["a"]}, "tensors": ["output"]}], "sample_every": 5}
        found = specified(spec, WATCH_NAMES="b", CHANNELS="igrad", SAMPLE_EVERY="2")
        assert found.groups == (Group(("a",), (), ("act",)),)
        assert found.sample_every == 5

    @pytest.mark.parametrize(
        "spec",
        [
            "{not json",
            "[]",
            "3",
            "{}",
            '{"wach": []}',
            '{"sample_every": 0}',
            '{"sample_every": true}',
            '{"sample_every": "5"}',
            '{"pre_context": -1}',
            '{"watch": [{"scope": {"types": ["MLP"]}}]}',
            '{"watch": [{"scope": {}, "tensors": ["output"]}]}',
            '{"watch": [{"scope": {"types": ["MLP"]}, "tensors": ["outputs"]}]}',
            '{"watch": [{"tensors": ["output"], "stride": 0}]}',
            '{"watch": [{"tensors": []}]}',
            '{"diagnostics": ["addr"]}',
            '{"follow": [{"tensor": "embedding_features", "stages": true}]}',
        ],
    )
    def test_a_malformed_spec_warns_says_why_and_falls_back_whole(self, spec: str) -> None:
        found = specified(spec, SAMPLE_EVERY="3", WATCH_NAMES="over")
        assert found.groups == (Group(("over",), ()),)
        assert found.sample_every == 3
        assert found.spec_source == "NANLOG_SPEC"
        assert found.spec_error
        (warning,) = found.warnings
        assert warning.startswith("NANLOG_SPEC: ")
        assert "flat NANLOG_* variables" in warning

    def test_the_error_of_a_spec_names_the_place_in_it(self) -> None:
        found = specified({"watch": [{"tensors": ["output"]}, {"tensors": ["outputs"]}]})
        assert found.spec_error is not None
        assert "watch[1].tensors[0]" in found.spec_error

    def test_a_blank_spec_is_no_spec(self) -> None:
        assert config(SPEC="  ", SPEC_FILE=" ") == Config()


class TestPrecedence:
    """--config, then NANLOG_SPEC_FILE, then NANLOG_SPEC, then flat variables."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> dict[str, str]:
        for name, every in (("config", 11), ("file", 12)):
            (tmp_path / f"{name}.json").write_text(json.dumps({"sample_every": every}))
        return {name: str(tmp_path / f"{name}.json") for name in ("config", "file", "missing")}

    def test_the_first_of_four_sources_wins_and_is_named(self, files: dict[str, str]) -> None:
        environ = {
            "NANLOG_SAMPLE_EVERY": "14",
            "NANLOG_SPEC": '{"sample_every": 13}',
            "NANLOG_SPEC_FILE": files["file"],
        }
        found = []
        one = Config.from_environment(environ, files["config"])
        found.append((one.sample_every, one.spec_source))
        for name in ("NANLOG_SPEC_FILE", "NANLOG_SPEC", "NANLOG_SAMPLE_EVERY"):
            one = Config.from_environment(environ)
            found.append((one.sample_every, one.spec_source))
            del environ[name]
        assert found == [
            (11, f"--config={files['config']}"),
            (12, f"NANLOG_SPEC_FILE={files['file']}"),
            (13, "NANLOG_SPEC"),
            (14, None),
        ]

    @pytest.mark.parametrize("way", ["--config", "NANLOG_SPEC_FILE"])
    def test_a_file_that_cannot_be_read_falls_back_to_flat_variables(self, files: dict[str, str], way: str) -> None:
        environ = {"NANLOG_SPEC": '{"sample_every": 13}', "NANLOG_SAMPLE_EVERY": "14"}
        path = files["missing"]
        if way == "--config":
            found = Config.from_environment(environ, path)
        else:
            found = Config.from_environment({**environ, "NANLOG_SPEC_FILE": path})
        assert found.sample_every == 14
        assert found.spec_source == f"{way}={path}"
        assert found.spec_error is not None
        assert "cannot be read" in found.spec_error
        assert len(found.warnings) == 1

    def test_a_file_that_is_not_text_falls_back_to_flat_variables(self, tmp_path: Path) -> None:
        path = tmp_path / "spec.json"
        path.write_bytes(b"\xff\xfe\x00")
        found = Config.from_environment({"NANLOG_SPEC_FILE": str(path), "NANLOG_PRE_CONTEXT": "2"})
        assert found.pre_context == 2
        assert found.spec_error is not None

    def test_a_directory_as_a_file_falls_back_to_flat_variables(self, tmp_path: Path) -> None:
        found = Config.from_environment({}, str(tmp_path))
        assert found.groups == (Group(),)
        assert found.spec_error is not None
