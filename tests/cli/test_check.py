"""`aorta-collectors check`: what the sweep would say and launch, with nothing run and nothing written."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import aorta, cell, probe_recipe, workload_recipe
from tests.support import Ran, run

pytestmark = pytest.mark.sweep

OPTIONS = {"NANLOG_SAMPLE_EVERY": "1"}


def _check(tmp_path: Path, recipe: Path, *words: str, code: int = 0) -> Ran:
    before = sorted(tmp_path.rglob("*"))
    ran = run(["aorta-collectors", "check", str(recipe), *words], tmp_path)
    assert ran.code == code, ran.out + ran.err
    assert sorted(tmp_path.rglob("*")) == before
    return ran


def _cells(ran: Ran) -> dict[str, dict[str, Any]]:
    return {cell["name"]: cell for cell in json.loads(ran.out)["cells"]}


def test_each_cell_of_a_probe_recipe_is_planned_as_a_dry_run_plans_it(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", ["none", "no_collectors"], collect={"layer_numerics": OPTIONS})
    command = ["--", "python", "-u", "train.py", "--name", "it's"]
    cells = _cells(_check(tmp_path, recipe, "--json", *command))
    launch = cells["none-none"]["launch"]
    assert launch["route"] == "front-end"
    assert launch["argv"] == ["python", "-u", "-m", "aorta_collectors.frontend", "train.py", "--name", "it's"]
    assert launch["env"].items() >= OPTIONS.items()
    dry = aorta(["sweep", "run", "--recipe", str(recipe), "--dry-run", *command], tmp_path).ok().out
    assert launch["shell"] in dry
    off = cells["no_collectors-none"]
    assert (off["off"], off["launch"]["argv"], off["launch"]["env"]) == (True, command[1:], {})
    assert off["variables"] == {"AORTA_COLLECTORS": "off"}


def test_a_person_sees_a_launch_once_for_all_cells_that_share_it(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", ["none", "tf32_off", "no_collectors"])
    shown = _check(tmp_path, recipe, "--collect", "layer_numerics", "--", "python", "train.py").out
    rows = {line.split()[0]: line for line in shown.partition("\n\n")[0].splitlines()}
    assert "front-end" in rows["tf32_off-none"]
    assert "off: no collectors" in rows["no_collectors-none"]
    assert shown.count("-m aorta_collectors.frontend train.py") == 1
    assert "none-none, tf32_off-none" in shown
    assert "valid; 3 cell(s), none refused" in shown


def test_a_refused_launch_names_the_cell_and_the_others_are_shown(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", ["none", "no_collectors"], collect={"layer_numerics": OPTIONS})
    cells = _cells(_check(tmp_path, recipe, "--json", "--", "ssh", "there", "python", "x.py", code=1))
    assert "ssh" in cells["none-none"]["refused"]
    assert cells["none-none"]["launch"] is None
    assert cells["no_collectors-none"]["refused"] is None
    shown = _check(tmp_path, recipe, "--", "ssh", "there", "python", "x.py", code=1).out
    assert "1 of 2 cell(s) refused" in shown


def test_a_workload_is_shown_with_what_each_cell_asks_for(tmp_path: Path) -> None:
    cells = [cell("baseline"), cell("unasked", collect=[])]
    recipe = workload_recipe(tmp_path / "r.yaml", cells=cells, collect={"layer_numerics": OPTIONS})
    ran = _check(tmp_path, recipe, "--json")
    assert json.loads(ran.out)["workload"] == "training"
    found = _cells(ran)
    assert found["baseline"]["launch"]["route"] == "in-process"
    assert found["baseline"]["launch"]["env"].items() >= OPTIONS.items()
    assert (found["unasked"]["collectors"], found["unasked"]["launch"]["env"]) == ([], {})
    assert "as it is" in _check(tmp_path, recipe).out


@pytest.mark.parametrize("fault", ["block", "mitigation", "command", "text", "sanitizer"])
def test_what_the_host_refuses_is_refused_with_its_words(fault: str, tmp_path: Path) -> None:
    recipe, command, message = tmp_path / "r.yaml", ["--", "python", "x.py"], ""
    match fault:
        case "block":
            probe_recipe(recipe, collect={"layer_numerics": {"NANLOG_SAMPLE_EVRY": "1"}})
            message = "recipe.collect.layer_numerics.NANLOG_SAMPLE_EVRY: unknown option; did you mean"
        case "mitigation":
            probe_recipe(recipe, ["no_such"])
            message = "no_such"
        case "command":
            probe_recipe(recipe)
            command, message = [], "requires a user command"
        case "text":
            recipe.write_bytes(b"\xff\xfe")
            message = "Error: "
        case "sanitizer":
            recipe.write_text("mode: sanitizer\n")
            message = "sanitizers"
    ran = _check(tmp_path, recipe, *command, code=2)
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_the_launch_that_is_shown_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", collect={"layer_numerics": OPTIONS})
    (tmp_path / "x.py").write_text("import os; print(os.environ['NANLOG_SAMPLE_EVERY'])")
    launch = _cells(_check(tmp_path, recipe, "--json", "--", "python", "x.py"))["none-none"]["launch"]
    assert shlex.split(launch["shell"])[-4:] == launch["argv"]
    assert run(["sh", "-c", launch["shell"]], tmp_path).ok().out == "1\n"
