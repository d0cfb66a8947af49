"""Two cells of a recipe instead of two commands: the host's own `training`, of which one cell has another dtype."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import TINY_TRAINING, cell, workload_recipe
from tests.investigate.acceptance.asking import answered

pytestmark = pytest.mark.sweep


def test_a_workload_is_compared_cell_by_cell(tmp_path: Path) -> None:
    config = {key: value for key, value in TINY_TRAINING.items() if key != "dtype"}
    cells = [
        cell("usual", workload_config={"dtype": "float32"}),
        cell("low", workload_config={"dtype": "bfloat16"}),
    ]
    recipe = workload_recipe(tmp_path / "recipe.yaml", steps=2, workload_config=config, cells=cells)
    words = ("--recipe", str(recipe), "--baseline-cell", "usual", "--candidate-cell", "low")
    found = answered(tmp_path, "values", *words, "--no-observer-effect", criterion=("--bitwise",))

    first = found.conclusion("First divergence")
    assert "invocation 0 (step 1)" in first
    assert "float32" in first
    assert "bfloat16" in first
    found.artifacts_of(first)
