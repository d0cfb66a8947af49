"""NANLOG_SPEC as a value: what it means, which flat variables stay in force beside it, and which source wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.errors import OptionsError
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.flat import DIAGNOSTICS
from aorta_collectors.layer_numerics.spec import OWNED
from aorta_collectors.layer_numerics.support import check_spec
from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.watch import WatchGroup
from tests.layer_numerics.test_flat import EVERY_HEAD, config

LINEAR = WatchGroup((), ("Linear",))
HEAD = {"names": ["head"]}


def specified(spec: Any, **variables: str) -> Config:
    return config(SPEC=spec if isinstance(spec, str) else json.dumps(spec), **variables)


def assignments(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


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
        assert found.groups == (WatchGroup((), ("MLP",), channels),)

    def test_each_watch_entry_is_a_group_of_its_own(self) -> None:
        found = specified(
            {
                "watch": [
                    {"scope": {"types": ["MLP"], "names": [" emb "]}, "tensors": ["output"], "stride": 4},
                    {"tensors": ["igrad"]},
                ],
                "sample_every": 5,
                "pre_context": 3,
            }
        )
        assert found.groups == (WatchGroup(("emb",), ("MLP",), ("act",), 4), WatchGroup((), ("Linear",), ("igrad",)))
        assert (found.sample_every, found.pre_context) == (5, 3)
        assert (found.spec_source, found.spec_error, found.warnings) == ("NANLOG_SPEC", None, ())
        assert found.channels == ["act", "igrad"]
        assert found.types == ["MLP", "Linear"]
        assert found.names == ["emb"]

    def test_diagnostics_and_origin(self) -> None:
        found = specified({"diagnostics": ["addr", "dump_tensor", "addr"], "origin": True})
        assert (found.diagnostics, found.origin) == ({"addr", "dump_tensor"}, True)
        assert found.groups == (LINEAR,)

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
            '{"sample_every": 1e300}',
            '{"pre_context": -1}',
            '{"watch": [{"scope": {"types": ["MLP"]}}]}',
            '{"watch": [{"scope": {}, "tensors": ["output"]}]}',
            '{"watch": [{"scope": {"types": ["MLP"]}, "tensors": ["outputs"]}]}',
            '{"watch": [{"tensors": ["output"], "stride": 0}]}',
            '{"watch": [{"tensors": []}]}',
            '{"diagnostics": ["adr"]}',
            '{"origin": 1}',
            '{"follow": [{}]}',
            '{"follow": [{"tensor": ""}]}',
            '{"follow": [{"tensor": "x", "at": "copy"}]}',
            '{"follow": [{"tensor": "x", "stride": 2}]}',
            '{"follow": [{"tensor": "x", "stages": false}]}',
            '{"follow": [{"tensor": "x", "pipeline": false}]}',
            '{"follow": [{"tensor": "x", "pipeline": false, "scope": {"names": ["a"]}, "stages": true}]}',
            '{"follow": [{"tensor": "x", "pipeline": false, "scope": {"names": ["a"]}, "stage_reads": true}]}',
            '{"follow": [{"tensor": "x", "bounds": [0]}]}',
            '{"follow": [{"tensor": "x", "bounds": [60, 0]}]}',
            '{"follow": [{"tensor": "x", "bounds": [0, NaN]}]}',
            '{"follow": [{"tensor": "x", "bounds": [0, 1' + "0" * 400 + "]}]}",
            '{"follow": [{"tensor": "x"}, {"tensor": "y", "stride": 2}]}',
        ],
    )
    def test_a_malformed_spec_warns_says_why_and_falls_back_whole(self, spec: str) -> None:
        found = specified(spec, SAMPLE_EVERY="3", WATCH_NAMES="over", PIPELINE="1", ADDR="1")
        assert found.groups == (WatchGroup(("over",), ()),)
        assert found.follows == (FollowEntry("embedding_features"),)
        assert (found.sample_every, found.diagnostics) == (3, {"addr"})
        assert found.spec_source == "NANLOG_SPEC"
        assert found.spec_error
        (warning,) = found.warnings
        assert warning == f"NANLOG_SPEC: {found.spec_error}; using the flat NANLOG_* variables instead"
        with pytest.raises(OptionsError):
            check_spec(json.loads(spec) if spec != "{not json" else None)

    def test_the_error_of_a_spec_names_the_place_in_it(self) -> None:
        found = specified({"watch": [{"tensors": ["output"]}, {"tensors": ["outputs"]}]})
        assert found.spec_error is not None
        assert "watch[1].tensors[0]" in found.spec_error

    def test_a_blank_spec_is_no_spec(self) -> None:
        assert config(SPEC="  ", SPEC_FILE=" ") == Config()


class TestFollow:
    @pytest.mark.parametrize(
        ("entry", "follow"),
        [
            ({}, FollowEntry("x")),
            ({"stages": True}, FollowEntry("x")),
            ({"stages": True, "scope": HEAD}, FollowEntry("x", modules=EVERY_HEAD)),
            (
                {"stages": True, "scope": {"types": ["MLP"]}, "stride": 8},
                FollowEntry("x", modules=WatchGroup((), ("MLP",), (), 8)),
            ),
            ({"pipeline": False, "scope": HEAD}, FollowEntry("x", stages=False, modules=EVERY_HEAD)),
            ({"pipeline": False, "stages": False, "scope": HEAD}, FollowEntry("x", stages=False, modules=EVERY_HEAD)),
            ({"stage_reads": True}, FollowEntry("x", side_stream=True)),
            ({"stage_reads": True, "pipeline": True}, FollowEntry("x", side_stream=True)),
            ({"bounds": [0, 60]}, FollowEntry("x", bounds=(0.0, 60.0))),
            ({"bounds": [1, 1]}, FollowEntry("x", bounds=(1.0, 1.0))),
        ],
    )
    def test_where_a_tensor_is_read(self, entry: dict[str, Any], follow: FollowEntry) -> None:
        found = specified({"follow": [{"tensor": " x ", **entry}]})
        assert found.follows == (follow,)
        assert (found.spec_error, found.warnings) == (None, ())
        assert found.groups == ()
        assert found.channels == found.types == found.names == []

    @pytest.mark.parametrize("stages", [{}, {"stages": False}])
    def test_a_scope_does_not_exclude_the_stages_and_that_is_said(self, stages: dict[str, bool]) -> None:
        found = specified({"follow": [{"tensor": "x"}, {"tensor": "y", "scope": HEAD, **stages}]})
        assert found.follows == (FollowEntry("x"), FollowEntry("y", modules=EVERY_HEAD))
        (warning,) = found.warnings
        assert warning.startswith("follow[1]: ")
        assert '"pipeline": false' in warning

    def test_each_entry_keeps_its_own_cadence_scope_and_bounds(self) -> None:
        found = specified(
            {
                "watch": [{"scope": {"types": ["MLP"]}, "tensors": ["output"], "stride": 2}],
                "follow": [
                    {"tensor": "a", "stages": True, "stage_reads": True, "bounds": [0, 60]},
                    {"tensor": "b", "pipeline": False, "scope": HEAD, "stride": 3, "bounds": [-1, 1]},
                    {"tensor": "a", "pipeline": False, "scope": {"types": ["MLP"]}},
                ],
            }
        )
        assert found.groups == (WatchGroup((), ("MLP",), ("act",), 2),)
        assert found.follows == (
            FollowEntry("a", True, True, None, (0, 60)),
            FollowEntry("b", False, False, WatchGroup(("head",), (), (), 3), (-1, 1)),
            FollowEntry("a", False, False, WatchGroup((), ("MLP",), ())),
        )
        assert found.warnings == ()
        assert found.bounds == ()
        assert (found.pipeline, found.stage_reads) == (True, True)
        assert found.track_attr == ["a", "b"]
        assert (found.track_every_layer, found.track_layer_stride) == (True, 3)

    def test_without_a_follow_nothing_of_it_is_on(self) -> None:
        found = config()
        assert (found.pipeline, found.stage_reads, found.track_attr) == (False, False, [])
        assert (found.track_every_layer, found.track_layer_stride) == (False, 1)


class TestSpecOverFlatVariables:
    OWN = assignments(
        "WATCH_NAMES=over WATCH_TYPES=MLP WATCH_STRIDE=2 CHANNELS=input SAMPLE_EVERY=2 PRE_CONTEXT=4 BOUNDS=a:0:1 "
        "PIPELINE=1 PIPELINE_OFF_FOLLOW=1 STAGE_READS=1 TRACK_ATTR=a TRACK_EVERY_LAYER=1 TRACK_LAYER_STRIDE=3 "
        "ADDR=1 LOCATE=1 BAD_VALUES=1 MOMENTS=1 DUMP_TENSOR=1 ALLOC_SNAPSHOT=1"
    )

    def test_no_variable_that_a_spec_speaks_for_leaks_through(self) -> None:
        assert {f"NANLOG_{name}" for name in self.OWN} == OWNED
        found = specified({"sample_every": 5}, **self.OWN)
        assert found.describe() == {**Config().describe(), "sample_every": 5}
        (warning,) = found.warnings
        assert warning.startswith("NANLOG_SPEC is in force; ignored: NANLOG_ADDR, ")
        assert all(f"NANLOG_{name}" in warning for name in self.OWN)

    def test_not_even_as_a_warning_about_its_value(self) -> None:
        found = specified({"sample_every": 5}, SAMPLE_EVERY="often", PIPELINE="0")
        assert found.warnings == ("NANLOG_SPEC is in force; ignored: NANLOG_SAMPLE_EVERY",)

    def test_what_a_spec_cannot_say_stays_in_force(self) -> None:
        found = specified(
            {"follow": [{"tensor": "x"}]},
            **assignments(
                "HUGE_THRESHOLD=10 HUGE_HEADROOM=2 MAX_RECORDS=9 MAX_PARAM_NUMEL=8 ORIGIN=1 STOP_ON_FIRST=1 VERBOSE=1 "
                "FLUSH_SEC=2 TRACK_MAX=7 SPARSE=1 SPARSE_HEAVY=1 BOUND_LO=0 BOUND_HI=1"
            ),
        )
        assert found == Config(
            groups=(),
            follows=(FollowEntry("x"),),
            bounds=(Bound("", 0, 1),),
            sparse=True,
            sparse_heavy=True,
            track_max=7,
            origin=True,
            huge_threshold=10.0,
            huge_headroom=2.0,
            max_records=9,
            max_param_numel=8,
            stop_on_first=True,
            flush_sec=2.0,
            verbose=True,
            spec_source="NANLOG_SPEC",
        )
        assert found.warnings == ()
        assert not specified({"origin": False}, ORIGIN="1").origin

    @pytest.mark.parametrize(
        ("spec", "groups"),
        [
            ({"sample_every": 5}, (LINEAR,)),
            ({"watch": []}, (LINEAR,)),
            ({"follow": []}, (LINEAR,)),
            ({"follow": [{"tensor": "x"}]}, ()),
            ({"follow": [{"tensor": "x"}], "watch": []}, ()),
        ],
    )
    def test_only_a_follow_takes_the_default_watch_away(self, spec: Any, groups: tuple[WatchGroup, ...]) -> None:
        assert specified(spec, WATCH_NAMES="over").groups == groups


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

    def test_a_relative_path_is_meant_from_the_directory(self, files: dict[str, str], tmp_path: Path) -> None:
        found = Config.from_environment({"NANLOG_SPEC_FILE": "file.json"}, directory=tmp_path)
        assert (found.sample_every, found.spec_source) == (12, "NANLOG_SPEC_FILE=file.json")
        assert Config.from_environment({}, "config.json", tmp_path).sample_every == 11

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
        assert found.groups == (LINEAR,)
        assert found.spec_error is not None


words = st.text("ab.", min_size=1, max_size=3)
numbers = st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(-1, 3) | st.integers(2**53 - 1, 2**53)
scopes = st.fixed_dictionaries(
    {}, optional={"names": st.lists(words, max_size=2), "types": st.lists(words, max_size=2)}
)
watches = st.fixed_dictionaries(
    {"tensors": st.lists(st.sampled_from(["input", "output", "weight", "bias", "igrad", "grad", "act"]), max_size=3)},
    optional={"scope": scopes, "stride": counts},
)
follows = st.fixed_dictionaries(
    {"tensor": st.sampled_from(["x", " y "])},
    optional={
        "stages": st.booleans(),
        "pipeline": st.booleans(),
        "stage_reads": st.booleans(),
        "scope": scopes,
        "stride": counts,
        "bounds": st.lists(numbers, min_size=2, max_size=2),
    },
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "watch": st.lists(watches, max_size=2),
        "follow": st.lists(follows, max_size=2),
        "sample_every": counts,
        "pre_context": counts,
        "diagnostics": st.lists(st.sampled_from([*DIAGNOSTICS, "all"]), max_size=3),
        "origin": st.booleans(),
    },
)
environments = st.dictionaries(
    st.sampled_from(sorted(OWNED | {"NANLOG_BOUND_LO", "NANLOG_BOUND_HI", "NANLOG_HUGE_HEADROOM", "NANLOG_SPARSE"})),
    st.sampled_from(["0", "1", "", "7", "x", "-1", "inf", "a:0:1", "a:1:0"]),
    max_size=4,
)


def refusal_of(spec: Any) -> str | None:
    try:
        check_spec(spec)
    except OptionsError as error:
        return str(error)
    return None


class TestAnySpec:
    @settings(max_examples=300, deadline=None)
    @given(specs, environments)
    def test_what_the_check_accepts_is_in_force_and_what_it_refuses_falls_back(
        self, spec: dict[str, Any], environ: dict[str, str]
    ) -> None:
        flat = Config.from_environment(environ)
        found = Config.from_environment({**environ, "NANLOG_SPEC": json.dumps(spec)})
        refusal = refusal_of(spec)
        assert found.spec_error == refusal
        if refusal is not None:
            assert found.describe() == flat.describe()
            assert len(found.warnings) == len(flat.warnings) + 1
            return
        assert len(found.follows) == len(spec.get("follow", []))
        for entry, asked in zip(found.follows, spec.get("follow", []), strict=True):
            assert entry.stages == asked.get("pipeline", True)
            assert (entry.modules is None) == ("scope" not in asked)
            assert entry.bounds is None or entry.bounds[0] <= entry.bounds[1]
        if spec.get("watch") or spec.get("follow"):
            assert len(found.groups) == len(spec.get("watch", []))
        assert all(group.channels for group in found.groups)

    @settings(deadline=None)
    @given(specs, environments)
    def test_the_description_survives_a_summary_file(self, spec: dict[str, Any], environ: dict[str, str]) -> None:
        described = Config.from_environment({**environ, "NANLOG_SPEC": json.dumps(spec)}).describe()
        assert orjson.loads(json.dumps(described, allow_nan=False)) == described

    def test_each_field_that_changes_what_is_recorded_is_in_the_description(self) -> None:
        others = {"verbose", "spec_source", "spec_error", "warnings"}
        assert set(Config.__dataclass_fields__) - others == set(Config().describe())
