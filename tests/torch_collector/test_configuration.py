"""A configuration from variables: what is malformed falls back and is told."""

from __future__ import annotations

import pytest

from tests.torch_collector.pulse import Config


def test_variables_are_the_options_in_upper_case_behind_the_prefix() -> None:
    assert Config.variables() == {"points": "PULSE_POINTS", "most": "PULSE_MOST", "ends": "PULSE_ENDS"}


def test_what_variables_say_is_in_force() -> None:
    found = Config.from_environment({"PULSE_POINTS": "after_step,after_forward", "PULSE_ENDS": "1", "MOST": "3"})
    assert found == Config(points=("after_step", "after_forward"), ends=True)
    assert found.describe() == {"points": ["after_step", "after_forward"], "most": 100, "ends": True}
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("variable", "text", "warning"),
    [
        ("PULSE_MOST", "many", 'PULSE_MOST: must be an integer >= 0, got "many"; the default is used'),
        ("PULSE_POINTS", "", "PULSE_POINTS: must not be empty; the default is used"),
        ("PULSE_ENDS", "yes", 'PULSE_ENDS: must be "1" (on) or "0" (off), got "yes"; the default is used'),
    ],
)
def test_what_is_malformed_falls_back_and_is_told(variable: str, text: str, warning: str) -> None:
    found = Config.from_environment({variable: text})
    assert found == Config()
    assert found.warnings == (warning,)


def test_what_has_no_effect_is_told_and_stays() -> None:
    found = Config.configured({"PULSE_MOST": "0", "PULSE_POINTS": "after_step"})
    assert found == Config(most=0, points=("after_step",))
    assert found.warnings == ("PULSE_POINTS has no effect with most: 0",)


def test_of_decoded_options_only_those_that_are_fields_are_taken() -> None:
    assert Config.of({"most": 3, "points": ["after_step"], "on_missing": "warn"}) == Config(("after_step",), 3)
