"""Flat NANLOG_* variables: defaults, what does not parse, what they follow, and the ranges they allow."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.watch import WatchGroup

EVERY_HEAD = WatchGroup(("head",), (), ())


def config(**variables: str) -> Config:
    return Config.from_environment({f"NANLOG_{name}": value for name, value in variables.items()})


class TestFlatVariables:
    def test_defaults_are_those_of_the_reference_table(self) -> None:
        assert config() == Config()
        assert config().describe() == {
            "groups": [{"names": [], "types": ["Linear"], "channels": ["act", "igrad"], "stride": 1}],
            "follows": [],
            "bounds": [],
            "diagnostics": [],
            "sparse": False,
            "sparse_heavy": False,
            "track_max": 64,
            "origin": False,
            "sample_every": 50,
            "pre_context": 0,
            "huge_threshold": 1e10,
            "huge_headroom": None,
            "max_records": 200_000,
            "max_param_numel": 50_000_000,
            "stop_on_first": False,
            "flush_sec": 30.0,
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
            ("HUGE_HEADROOM", "0", "huge_headroom", 0.0),
            ("HUGE_HEADROOM", "2.5", "huge_headroom", 2.5),
            ("FLUSH_SEC", "0", "flush_sec", 0.0),
            ("FLUSH_SEC", "0.5", "flush_sec", 0.5),
            ("MAX_RECORDS", "0", "max_records", 0),
            ("MAX_RECORDS", "12", "max_records", 12),
            ("MAX_PARAM_NUMEL", "5", "max_param_numel", 5),
            ("TRACK_MAX", "2", "track_max", 2),
            ("STOP_ON_FIRST", "1", "stop_on_first", True),
            ("STOP_ON_FIRST", "0", "stop_on_first", False),
            ("VERBOSE", "1", "verbose", True),
            ("ORIGIN", "1", "origin", True),
            ("ADDR", "1", "diagnostics", {"addr"}),
            ("LOCATE", "1", "diagnostics", {"locate"}),
            ("BAD_VALUES", "1", "diagnostics", {"bad_values"}),
            ("MOMENTS", "1", "diagnostics", {"moments"}),
            ("DUMP_TENSOR", "1", "diagnostics", {"dump_tensor"}),
            ("ALLOC_SNAPSHOT", "1", "diagnostics", {"alloc_snapshot"}),
            ("BOUNDS", "emb:0:60", "bounds", (Bound("emb", 0, 60),)),
            ("BOUND_LO", "-1", "bounds", (Bound("", -1, math.inf),)),
            ("BOUND_HI", "1e3", "bounds", (Bound("", -math.inf, 1000),)),
        ],
    )
    def test_a_variable_sets_its_value(self, name: str, text: str, attribute: str, value: Any) -> None:
        found = config(**{name: text})
        assert getattr(found, attribute) == value
        assert found.warnings == ()

    @pytest.mark.parametrize(
        ("variables", "group"),
        [
            ({"WATCH_TYPES": "MLP, Block ,"}, WatchGroup((), ("MLP", "Block"))),
            ({"WATCH_NAMES": "emb_proj,over"}, WatchGroup(("emb_proj", "over"), ())),
            ({"WATCH_NAMES": "over", "WATCH_TYPES": "Linear"}, WatchGroup(("over",), ("Linear",))),
            ({"WATCH_NAMES": "over", "WATCH_TYPES": ""}, WatchGroup(("over",), ())),
            ({"CHANNELS": "input,wgrad"}, WatchGroup((), ("Linear",), ("input", "wgrad"))),
            ({"WATCH_STRIDE": "4"}, WatchGroup((), ("Linear",), stride=4)),
        ],
    )
    def test_the_watch_variables_make_one_group(self, variables: dict[str, str], group: WatchGroup) -> None:
        found = config(**variables)
        assert found.groups == (group,)
        assert found.warnings == ()

    @pytest.mark.parametrize(
        ("name", "empty"),
        [("WATCH_TYPES", "NANLOG_WATCH_TYPES and NANLOG_WATCH_NAMES are"), ("CHANNELS", "CHANNELS is")],
    )
    def test_an_empty_scope_and_no_channels_watch_nothing_and_say_so(self, name: str, empty: str) -> None:
        found = config(**{name: ""})
        assert found.groups == ()
        (warning,) = found.warnings
        assert f"{empty} empty; no modules will be watched" in warning
        assert config(PIPELINE="1", **{name: ""}).warnings == ()

    @pytest.mark.parametrize("text", ["", "  "])
    @pytest.mark.parametrize(
        "name",
        [
            *("SAMPLE_EVERY", "PRE_CONTEXT", "HUGE_THRESHOLD", "HUGE_HEADROOM", "MAX_RECORDS", "BOUNDS", "BOUND_LO"),
            *("ORIGIN", "ADDR", "PIPELINE", "TRACK_ATTR", "TRACK_LAYER_STRIDE"),
        ],
    )
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
            ("SAMPLE_EVERY", "9" * 20),
            ("SAMPLE_EVERY", "9" * 5000),
            ("PRE_CONTEXT", "-1"),
            ("PRE_CONTEXT", "ten"),
            ("HUGE_THRESHOLD", "0"),
            ("HUGE_THRESHOLD", "-1e10"),
            ("HUGE_THRESHOLD", "nan"),
            ("HUGE_THRESHOLD", "inf"),
            ("HUGE_THRESHOLD", "big"),
            ("HUGE_HEADROOM", "-1"),
            ("HUGE_HEADROOM", "few"),
            ("FLUSH_SEC", "-1"),
            ("FLUSH_SEC", "inf"),
            ("MAX_RECORDS", "-1"),
            ("MAX_PARAM_NUMEL", "many"),
            ("TRACK_MAX", "0"),
            ("WATCH_STRIDE", "0"),
            ("WATCH_STRIDE", "x"),
            ("BOUND_LO", "low"),
            ("BOUND_LO", "nan"),
            ("BOUND_HI", "inf"),
            ("BOUNDS", "emb"),
            ("BOUNDS", "emb:0"),
            ("BOUNDS", "0:60"),
            ("BOUNDS", "emb:zero:60"),
            ("BOUNDS", "emb:0:nan"),
            ("VERBOSE", "yes"),
            ("ORIGIN", "true"),
            ("PIPELINE", "on"),
            ("ADDR", "2"),
        ],
    )
    def test_a_malformed_value_warns_with_its_name_and_falls_back(self, name: str, text: str) -> None:
        found = config(**{name: text})
        assert found == Config()
        (warning,) = found.warnings
        assert warning.startswith(f"NANLOG_{name}: must be ")
        assert warning.endswith("; ignored") or "; using " in warning
        assert len(warning) < 250

    def test_unknown_channels_are_named_and_the_known_ones_stay(self) -> None:
        found = config(CHANNELS="act, output,wgrad,acts")
        assert found.channels == ["act", "wgrad"]
        (warning,) = found.warnings
        assert warning.startswith("NANLOG_CHANNELS: ['acts', 'output'] ignored")

    def test_each_malformed_variable_gets_its_own_warning(self) -> None:
        assert len(config(SAMPLE_EVERY="x", PRE_CONTEXT="y", CHANNELS="act,z").warnings) == 3

    def test_a_misspelt_variable_is_named_with_what_was_meant(self) -> None:
        found = Config.from_environment(
            {"NANLOG_SAMPLE_EVRY": "1", "NANLOG_DIR": "out", "NANLOG_RUN_ID": "r", "X": "1"}
        )
        assert found == Config()
        assert found.warnings == ("NANLOG_SAMPLE_EVRY: unknown, and ignored; did you mean NANLOG_SAMPLE_EVERY?",)


class TestFlatFollow:
    @pytest.mark.parametrize(
        ("variables", "follows"),
        [
            ({"PIPELINE": "1"}, [FollowEntry("embedding_features")]),
            ({"PIPELINE": "1", "TRACK_ATTR": " "}, [FollowEntry("embedding_features")]),
            ({"PIPELINE": "1", "TRACK_ATTR": "a, b,a"}, [FollowEntry("a"), FollowEntry("b")]),
            ({"PIPELINE": "1", "STAGE_READS": "1"}, [FollowEntry("embedding_features", side_stream=True)]),
            ({"PIPELINE_OFF_FOLLOW": "1"}, [FollowEntry("embedding_features", stages=False)]),
            (
                {"PIPELINE": "1", "TRACK_EVERY_LAYER": "1", "WATCH_NAMES": "head", "WATCH_STRIDE": "2"},
                [FollowEntry("embedding_features", modules=EVERY_HEAD)],
            ),
            (
                {"PIPELINE": "1", "TRACK_EVERY_LAYER": "1", "TRACK_LAYER_STRIDE": "3", "TRACK_ATTR": "a,b"},
                [FollowEntry(name, modules=WatchGroup((), ("Linear",), (), 3)) for name in "ab"],
            ),
            (
                {"PIPELINE_OFF_FOLLOW": "1", "TRACK_EVERY_LAYER": "1", "WATCH_NAMES": "head", "CHANNELS": ""},
                [FollowEntry("embedding_features", stages=False, modules=EVERY_HEAD)],
            ),
        ],
    )
    def test_one_entry_for_each_tracked_attribute(self, variables: dict[str, str], follows: list[FollowEntry]) -> None:
        found = config(**variables)
        assert found.follows == tuple(follows)
        assert found.warnings == ()
        assert found.pipeline == ("PIPELINE" in variables)
        assert found.track_attr == [entry.tensor for entry in follows]

    @pytest.mark.parametrize(
        ("variables", "warning"),
        [
            ({"TRACK_EVERY_LAYER": "1"}, "NANLOG_TRACK_EVERY_LAYER: no effect without a follow"),
            (
                {"TRACK_LAYER_STRIDE": "2"},
                "NANLOG_TRACK_LAYER_STRIDE: no effect without NANLOG_TRACK_EVERY_LAYER=1",
            ),
            ({"STAGE_READS": "1"}, "NANLOG_STAGE_READS: no effect without NANLOG_PIPELINE=1"),
            ({"SPARSE_HEAVY": "1"}, "NANLOG_SPARSE_HEAVY: no effect without NANLOG_SPARSE=1"),
        ],
    )
    def test_what_needs_another_variable_warns_alone_and_does_nothing(
        self, variables: dict[str, str], warning: str
    ) -> None:
        found = config(**variables)
        assert found == Config()
        (only,) = found.warnings
        assert only.startswith(warning)

    @pytest.mark.parametrize(
        ("variables", "follow", "warning"),
        [
            (
                {"PIPELINE": "1", "PIPELINE_OFF_FOLLOW": "1"},
                FollowEntry("embedding_features"),
                "NANLOG_PIPELINE_OFF_FOLLOW: no effect beside NANLOG_PIPELINE=1",
            ),
            (
                {"PIPELINE_OFF_FOLLOW": "1", "STAGE_READS": "1"},
                FollowEntry("embedding_features", stages=False),
                "NANLOG_STAGE_READS: no effect without NANLOG_PIPELINE=1",
            ),
            (
                {"PIPELINE": "1", "TRACK_LAYER_STRIDE": "2"},
                FollowEntry("embedding_features"),
                "NANLOG_TRACK_LAYER_STRIDE: no effect without NANLOG_TRACK_EVERY_LAYER=1",
            ),
            (
                {"PIPELINE": "1", "TRACK_EVERY_LAYER": "1", "WATCH_TYPES": ""},
                FollowEntry("embedding_features"),
                "NANLOG_TRACK_EVERY_LAYER: no effect without NANLOG_WATCH_NAMES or NANLOG_WATCH_TYPES",
            ),
        ],
    )
    def test_what_a_follow_does_not_need_warns(
        self, variables: dict[str, str], follow: FollowEntry, warning: str
    ) -> None:
        found = config(**variables)
        assert found.follows == (follow,)
        assert found.warnings == (warning,)

    def test_sparse_records_need_a_follow(self) -> None:
        assert config(SPARSE="1").warnings == ("NANLOG_SPARSE: no effect without a follow",)
        found = config(SPARSE="1", SPARSE_HEAVY="1", PIPELINE="1")
        assert (found.sparse, found.sparse_heavy, found.warnings) == (True, True, ())


class TestBounds:
    @pytest.mark.parametrize(
        ("text", "bounds"),
        [
            ("a:0:1;b:-2:3.5", [Bound("a", 0, 1), Bound("b", -2, 3.5)]),
            (" a : 0 : 1 ;; ", [Bound("a", 0, 1)]),
            ("std::vector:0:1", [Bound("std::vector", 0, 1)]),
            ("a:-inf:60;b:1:inf", [Bound("a", -math.inf, 60), Bound("b", 1, math.inf)]),
            (":0:1", [Bound("", 0, 1)]),
            ("a:1:1", [Bound("a", 1, 1)]),
        ],
    )
    def test_entries_are_split_from_the_right(self, text: str, bounds: list[Bound]) -> None:
        assert config(BOUNDS=text).bounds == tuple(bounds)
        assert config(BOUNDS=text).warnings == ()

    def test_a_malformed_entry_is_named_and_the_others_hold(self) -> None:
        found = config(BOUNDS="a:0:1;b:2:1;c;d:3:4")
        assert found.bounds == (Bound("a", 0, 1), Bound("d", 3, 4))
        assert found.warnings == (
            'NANLOG_BOUNDS: lo must not be above hi, got "b:2:1"; ignored',
            'NANLOG_BOUNDS: must be substring:lo:hi with two numbers, got "c"; ignored',
        )

    def test_the_range_of_all_layers_comes_last(self) -> None:
        found = config(BOUNDS="a:0:1", BOUND_LO="-5", BOUND_HI="5")
        assert found.bounds == (Bound("a", 0, 1), Bound("", -5, 5))
        assert found.bound_all == (-5, 5)
        assert config(BOUNDS="a:0:1").bound_all is None

    def test_a_range_without_anything_in_it_is_ignored(self) -> None:
        found = config(BOUND_LO="5", BOUND_HI="-5")
        assert found == Config()
        assert found.warnings == ("NANLOG_BOUND_LO: 5.0 is above NANLOG_BOUND_HI, -5.0; both ignored",)

    @given(st.lists(st.tuples(st.text("ab.:", max_size=4), st.floats(), st.floats()), max_size=4))
    def test_any_list_of_ranges_is_read_back(self, entries: list[tuple[str, float, float]]) -> None:
        found = config(BOUNDS=";".join(f"{pattern}:{low!r}:{high!r}" for pattern, low, high in entries))
        assert found.bounds == tuple(Bound(*entry) for entry in entries if entry[1] <= entry[2])
        assert len(found.warnings) == len(entries) - len(found.bounds)
