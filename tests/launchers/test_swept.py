"""A real sweep over each launcher that is installed: its receipt says captured, and how collectors got in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import probe_recipe, sweep_command
from tests.launchers.commands import SWEPT, Case, lay_out, own_lines


@pytest.mark.sweep
@pytest.mark.parametrize("case", SWEPT, ids=lambda case: case.text.split()[0])
def test_a_sweep_over_a_launcher_is_captured(case: Case, bare: list[str], tmp_path: Path) -> None:
    case.skip_where_it_cannot_run()
    recipe = probe_recipe(lay_out(tmp_path) / "recipe.yaml")
    sweep = sweep_command(tmp_path, recipe, case.words, "--collect", "layer_numerics")
    receipt = sweep.receipt()
    assert receipt["verdict"] == "captured", f"{receipt['reason']}\n{sweep.ran}"
    sweep.ran.ok()
    assert own_lines(sweep.stdout()) == sorted(bare * case.processes)
    assert len(list(sweep.artifacts().glob("summary_*.json"))) == case.processes
    assert receipt["route"] == case.route
