"""A recipe that cannot be honoured fails when it is loaded, with a line that says where, what and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.support import aorta, cell, probe_recipe, workload_recipe
from tests.support import Ran

pytestmark = pytest.mark.sweep

BLOCK = "recipe.collect.layer_numerics"
FOLLOW_STRIDE = '{"follow": [{"tensor": "x", "scope": {"types": ["Linear"]}, "stride": 0}]}'


def _load(tmp_path: Path, flow: str, *, dry: bool = True, env: dict[str, str] | None = None, **content: Any) -> Ran:
    """Run a recipe; where it is refused, nothing may have been written."""
    if flow == "probe":
        recipe, command = probe_recipe(tmp_path / "r.yaml", **content), ["--", "python", "-c", "print(1)"]
    else:
        recipe, command = workload_recipe(tmp_path / "r.yaml", **content), []
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out", *(["--dry-run"] if dry else [])]
    return aorta([*words, *command], tmp_path, env)


def _error(ran: Ran, tmp_path: Path) -> str:
    """The one line that the user sees."""
    assert ran.code != 0, ran.out
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()
    assert ran.out == ""
    (line,) = [line for line in ran.err.splitlines() if line.startswith("Error: ")]
    return line.removeprefix("Error: ")


def _package(directory: Path, name: str, entries: str) -> dict[str, str]:
    """A package that offers a collector; returns the environment in which it is installed."""
    info = directory / "site" / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[aorta.collectors]\n{entries}\n")
    return {"PYTHONPATH": str(info.parent)}


WRONG = {
    "an unknown option": (
        {"NANLOG_SAMPLE_EVRY": "1"},
        ".NANLOG_SAMPLE_EVRY: unknown option; did you mean NANLOG_SAMPLE_EVERY?",
    ),
    "a spec that is no JSON": (
        {"NANLOG_SPEC": '{"watch": '},
        ".NANLOG_SPEC: must be JSON text: Expecting value at line 1, column 11",
    ),
    "a spec of the wrong shape": (
        {"NANLOG_SPEC": FOLLOW_STRIDE},
        ".NANLOG_SPEC: follow[0].stride: must be an integer >= 1, got 0",
    ),
}


@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "run"])
@pytest.mark.parametrize("flow", ["workload", "probe"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_bad_block_is_refused_with_its_place(wrong: str, flow: str, dry: bool, tmp_path: Path) -> None:
    block, message = WRONG[wrong]
    ran = _load(tmp_path, flow, dry=dry, collect={"layer_numerics": block})
    assert _error(ran, tmp_path) == f"{BLOCK}{message}"


@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "run"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_bad_block_of_a_cell_is_refused_with_the_cells_name(wrong: str, dry: bool, tmp_path: Path) -> None:
    """In the workload flow; the probe flow makes its own cells, which have no collect: block."""
    block, message = WRONG[wrong]
    ran = _load(tmp_path, "workload", dry=dry, cells=[cell("good"), cell("odd", collect={"layer_numerics": block})])
    assert _error(ran, tmp_path) == f"recipe.cells[odd].collect.layer_numerics{message}"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"NANLOG_DIR": "here"}, ".NANLOG_DIR: the sweep sets it, one directory a trial; remove it"),
        ({"NANLOG_SAMPLE_EVERY": "0"}, ".NANLOG_SAMPLE_EVERY: must be an integer >= 1, got 0"),
        ({"NANLOG_SAMPLE_EVERY": "ten"}, '.NANLOG_SAMPLE_EVERY: must be an integer >= 1, got "ten"'),
        ({"NANLOG_STOP_ON_FIRST": "yes"}, '.NANLOG_STOP_ON_FIRST: must be "1" (on) or "0" (off), got "yes"'),
        ({"NANLOG_CHANNELS": "act,igrat"}, ".NANLOG_CHANNELS[1]: must be one of"),
        ({"NANLOG_HUGE_THRESHOLD": "nan"}, ".NANLOG_HUGE_THRESHOLD: must be a number > 0"),
        ({"frontend": "stock"}, ".frontend: must be one of native, aorta"),
        ({"on_missing": "ignore"}, ".on_missing: must be one of error, warn"),
        ({"NANLOG_SPEC": "[]"}, ".NANLOG_SPEC: must be an object, got []"),
        ({"NANLOG_SPEC": "{}"}, ".NANLOG_SPEC: must not be empty; allowed: "),
        ({"NANLOG_SPEC": '{"wach": []}'}, ".NANLOG_SPEC: unknown key wach; did you mean watch?"),
        ({"NANLOG_SPEC": '{"watch": [], "watch": []}'}, ".NANLOG_SPEC: key watch is given twice"),
        ({"NANLOG_SPEC": '{"watch": [{"tensors": ["output"], "stride": 0}]}'}, ".NANLOG_SPEC: watch[0].stride: must"),
        ({"NANLOG_SPEC_FILE": "no_such.json"}, ".NANLOG_SPEC_FILE: no_such.json cannot be read"),
    ],
)
def test_each_bad_value_is_named(block: dict[str, str], message: str, tmp_path: Path) -> None:
    ran = _load(tmp_path, "probe", collect={"layer_numerics": block})
    assert _error(ran, tmp_path).startswith(f"{BLOCK}{message}")


@pytest.mark.parametrize(
    ("block", "option"),
    [
        ({"NANLOG_ORIGIN": "1"}, "NANLOG_ORIGIN"),
        ({"NANLOG_HUGE_HEADROOM": "2"}, "NANLOG_HUGE_HEADROOM"),
        ({"NANLOG_SPEC": '{"origin": true}'}, "NANLOG_SPEC: origin"),
    ],
)
def test_an_option_that_the_stock_logger_does_not_have_is_refused_with_it_and_not_ignored(
    block: dict[str, str], option: str, tmp_path: Path
) -> None:
    error = _error(_load(tmp_path, "probe", collect={"layer_numerics": {"frontend": "aorta", **block}}), tmp_path)
    assert error.startswith(f"{BLOCK}.{option}: frontend: aorta is the stock logger, which does not have it")


def test_the_stock_logger_cannot_be_asked_for_in_process(tmp_path: Path) -> None:
    error = _error(_load(tmp_path, "workload", collect={"layer_numerics": {"frontend": "aorta"}}), tmp_path)
    assert error.startswith(f"{BLOCK}.frontend: the stock logger can only run a script")


def test_an_unknown_collector_is_refused_by_name(tmp_path: Path) -> None:
    error = _error(_load(tmp_path, "probe", collect=["layer_numeric"]), tmp_path)
    assert "layer_numeric" in error
    assert "layer_numerics" in error


def test_only_recipes_that_ask_for_a_doubly_offered_collector_fail(tmp_path: Path) -> None:
    env = _package(tmp_path, "other-collectors", "layer_numerics = other_collectors:Other")
    error = _error(_load(tmp_path, "workload", env=env, collect=["layer_numerics"]), tmp_path)
    assert error.startswith(f"{BLOCK}: collector 'layer_numerics' is offered by ")
    assert "aorta-collectors and other-collectors" in error
    assert "uninstall one" in error
    _load(tmp_path, "workload", env=env).ok()


def test_only_recipes_that_ask_for_a_broken_collector_fail(tmp_path: Path) -> None:
    env = _package(tmp_path, "broken-collectors", "amd_log = broken_collectors:AmdLog")
    error = _error(_load(tmp_path, "probe", env=env, collect=["layer_numerics", "amd_log"]), tmp_path)
    assert error.startswith("recipe.collect.amd_log: collector 'amd_log' of package broken-collectors ")
    assert "ModuleNotFoundError: No module named 'broken_collectors'" in error
    _load(tmp_path, "probe", env=env, collect=["layer_numerics"]).ok()


def test_a_collector_that_is_no_collector_is_refused_by_its_package(tmp_path: Path) -> None:
    env = _package(tmp_path, "odd-collectors", "amd_log = builtins:dict")
    error = _error(_load(tmp_path, "probe", env=env, collect=["amd_log"]), tmp_path)
    assert "odd-collectors" in error
    assert "not an aorta_collectors.api.Collector" in error
