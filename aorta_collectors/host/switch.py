"""The switch that lets a cell run uninstrumented."""

from __future__ import annotations

from collections.abc import Mapping

from aorta_collectors.environment import SWITCH_VARIABLE


def switched_off(environment: Mapping[str, str]) -> bool:
    """Whether the variables that a recipe sets for a cell switch collectors off.

    Only what the recipe controls counts: a variable left over in the operator's shell must not let a request pass.
    """
    return environment.get(SWITCH_VARIABLE, "").lower() == "off"
