"""Collectors of an investigation: defaults by kind, options and points checked by the collectors themselves."""

from __future__ import annotations

import pytest

from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.collecting import DEFAULTS, collecting_for


class TestDefaults:
    @pytest.mark.parametrize("kind", DEFAULTS)
    def test_each_kind_has_a_collector_that_takes_its_options(self, kind: str) -> None:
        name, options, points = DEFAULTS[kind]
        found = collecting_for(kind, [], [])
        assert dict(found.blocks[name]) == dict(options)
        assert found.points == points
        assert set(found.observed) >= set(points)
        assert found.loaded[name][1].raw == options

    def test_all_modules_are_asked_where_a_nan_begins(self) -> None:
        _, options = collecting_for("finite", [], []).loaded["layer_numerics"]
        assert options.values["NANLOG_WATCH_TYPES"] == ["*"]
        assert options.values["NANLOG_ORIGIN"] is True

    def test_values_are_kept_where_values_are_asked_about(self) -> None:
        assert collecting_for("values", [], []).blocks == {"tensors": {"keep": "values"}}


class TestCollect:
    def test_options_come_as_in_a_recipe(self) -> None:
        given = ["tensors:keep=digest,points=after_forward,after_step,steps=1-3", "numerics"]
        found = collecting_for("values", given, [])
        assert found.blocks == {
            "tensors": {"keep": "digest", "points": "after_forward,after_step", "steps": "1-3"},
            "numerics": {},
        }
        assert found.points == ("after_forward", "after_step")

    def test_json_goes_through_with_its_commas(self) -> None:
        spec = '{"sample_every": 2, "pre_context": 1}'
        found = collecting_for("finite", [f"layer_numerics:NANLOG_SPEC={spec}"], [])
        assert found.loaded["layer_numerics"][1].values["NANLOG_SPEC"] == {"sample_every": 2, "pre_context": 1}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("tensor", "did you mean tensors"),
            ("tensors:keep", "NAME:KEY=VALUE"),
            ("tensors:keep=all", "--collect tensors.keep: must be one of digest, values"),
            ("tensors:kep=values", "--collect tensors.kep: unknown option; did you mean keep"),
            ("tensors:keep=values,keep=digest", "keep is given twice"),
        ],
    )
    def test_what_a_collector_does_not_know_is_refused(self, given: str, message: str) -> None:
        with pytest.raises(OptionsError, match=message):
            collecting_for("values", [given], [])


class TestPoints:
    def test_points_of_a_models_life_become_the_collectors_option(self) -> None:
        found = collecting_for("values", [], ["before_forward", "after_step"])
        assert found.blocks["tensors"]["points"] == "before_forward,after_step"
        assert found.points == ("before_forward", "after_step")

    def test_what_collectors_look_at_by_default_is_known_too_in_the_order_of_a_step(self) -> None:
        assert collecting_for("values", [], []).observed == ("after_forward", "after_backward")
        assert collecting_for("values", [], ["before_forward"]).observed == ("before_forward",)
        assert collecting_for("values", [], ["user:logits"]).observed == (
            "after_forward",
            "after_backward",
            "user:logits",
        )
        both = collecting_for("values", ["memory:points=after_step,before_forward", "tensors"], [])
        assert both.observed == ("before_forward", "after_forward", "after_backward", "after_step")
        assert collecting_for("finite", [], []).observed == ()

    def test_points_of_the_programs_own_are_asked_for_and_are_no_option(self) -> None:
        found = collecting_for("memory", [], ["user:epoch"])
        assert found.blocks == {"memory": {}}
        assert found.points == ("user:epoch",)

    def test_what_the_collectors_option_says_stays(self) -> None:
        found = collecting_for("values", ["tensors:points=after_step"], ["after_forward"])
        assert found.blocks["tensors"]["points"] == "after_step"
        assert found.points == ("after_forward", "after_step")

    def test_without_points_none_are_asked_for_of_a_collector_that_was_chosen(self) -> None:
        assert collecting_for("values", ["tensors"], []).points == ()

    @pytest.mark.parametrize("point", ["forward", "user:", "after forward"])
    def test_an_unknown_point_is_refused(self, point: str) -> None:
        with pytest.raises(OptionsError, match="is no point; allowed: after_backward"):
            collecting_for("values", [], [point])

    def test_a_collector_without_points_cannot_have_any(self) -> None:
        with pytest.raises(OptionsError, match="layer_numerics has no points"):
            collecting_for("finite", [], ["after_forward"])
