"""A launch of which no evidence can come ends the sweep before its first trial, with the cells' names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import aorta, cell, mitigations, probe_recipe, write_recipe
from tests.support import Ran

pytestmark = pytest.mark.sweep

FAR = ["ssh", "node7", "python", "train.py"]


def _refused(tmp_path: Path, ran: Ran, *cells: str) -> None:
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert line.startswith("Error: nothing was run, since a launch is refused: ssh: the program runs where ")
    assert line.endswith(f"(cells: {', '.join(cells)})")
    assert "run `aorta sweep` there" in line
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_a_command_is_refused_once_for_all_cells_that_ask(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", ["none", "other", "no_collectors"], collect=["layer_numerics"])
    bundles = mitigations(tmp_path / "m.json", {"other": {"LR": "2"}})
    words = ["sweep", "run", "--recipe", str(recipe), "--mitigations-file", str(bundles), "--output", "out"]
    _refused(tmp_path, aorta([*words, "--", *FAR], tmp_path), "none-none", "other-none")


def test_of_scripts_the_cells_that_are_refused_are_named(tmp_path: Path) -> None:
    cells = [
        cell("near", workload_config={"argv": ["python", "train.py"]}),
        cell("far", workload_config={"argv": FAR}),
        cell("unasked", collect=[], workload_config={"argv": FAR}),
    ]
    recipe = write_recipe(tmp_path / "r.yaml", workload="script", steps=1, cells=cells, collect=["layer_numerics"])
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out"]
    _refused(tmp_path, aorta(words, tmp_path), "far")


def test_a_dry_run_shows_a_script_as_it_would_be_started(tmp_path: Path) -> None:
    config = {"argv": ["python", "train.py"], "cwd": "work", "env": {"LR": "2", "SEED": "1"}}
    cells = [cell("a", workload_config=config, extra_env={"LR": "3", "PYTHONPATH": "/mine"})]
    recipe = write_recipe(tmp_path / "r.yaml", workload="script", steps=1, cells=cells, collect=["layer_numerics"])
    out = aorta(["sweep", "run", "--recipe", str(recipe), "--dry-run"], tmp_path).ok().out.splitlines()
    assert f"    started in: {tmp_path / 'work'}" in out
    words = out[-1].split()
    assert "SEED=1" in words
    assert not [word for word in words if word.startswith("LR=")], "what the cell varies is set by the sweep"
    (path,) = [word for word in words if word.startswith("PYTHONPATH=")]
    assert path.endswith(":/mine")
