"""Attaching to the host: once, all or nothing, and unnoticed where no collector of ours is asked for."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.host.support import TINY_INFERENCE, aorta, cell, probe_recipe, write_recipe
from tests.support import PYTHON, Ran, run

pytestmark = pytest.mark.sweep

#: Every program below begins with this.
PREAMBLE = """
import importlib
from aorta_collectors.host import attach as attaching

def functions():
    return {(p.module, p.name): getattr(importlib.import_module(p.module), p.name) for p in attaching.PATCH_POINTS}

before = functions()
"""

#: A host whose function has another signature. Then its command line runs.
CHANGED_HOST = """
import sys
import aorta.triage.runner as runner

original = runner._preflight_validate
runner._preflight_validate = lambda recipe, strict=False: original(recipe)
from aorta.cli import main

sys.argv[0] = "aorta"
main()
"""


def _python(program: str, tmp_path: Path) -> Ran:
    return run([PYTHON, "-c", PREAMBLE + program], tmp_path)


def test_attaching_twice_attaches_once(tmp_path: Path) -> None:
    program = """
first = attaching.attach()
attached = functions()
assert attaching.attach() is first
assert functions() == attached
assert all(attached[key] is not before[key] for key in before)
assert all(attached[key].__wrapped__ is before[key] for key in before)
"""
    _python(program, tmp_path).ok()


def test_loading_the_mitigation_attaches_and_importing_the_package_does_not(tmp_path: Path) -> None:
    program = """
import sys
import aorta_collectors.host
assert functions() == before
for _ in range(2):
    assert aorta_collectors.host.no_collectors == {"AORTA_COLLECTORS": "off"}
attached = functions()
assert all(attached[key].__wrapped__ is before[key] for key in before)
assert "torch" not in sys.modules
"""
    _python(program, tmp_path).ok()


def test_the_host_itself_attaches_us_when_it_loads_its_mitigations(tmp_path: Path) -> None:
    program = """
from aorta.registry import load_mitigations
for _ in range(2):
    assert "no_collectors" in load_mitigations()
assert all(function.__wrapped__ is before[key] for key, function in functions().items())
"""
    _python(program, tmp_path).ok()


def test_detaching_restores_the_originals(tmp_path: Path) -> None:
    program = """
for _ in range(2):
    attaching.attach()
    attaching.detach()
    assert functions() == before
attaching.detach()
assert functions() == before
"""
    _python(program, tmp_path).ok()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            "module._run_single_trial = lambda trial_idx, request: None",
            "aorta.run.dispatcher._run_single_trial takes (trial_idx, request), not (trial_idx, workload_cls, ",
        ),
        ("del module._run_single_trial", "aorta.run.dispatcher has no function _run_single_trial"),
        ("module.KNOWN_RECIPES = ['numerics']", "aorta.run.dispatcher has no frozenset KNOWN_RECIPES"),
        (
            "module.KNOWN_RECIPES -= {'numerics', 'rocprof'}",
            "aorta.run.dispatcher.KNOWN_RECIPES lacks numerics, rocprof",
        ),
    ],
    ids=["another signature", "no such function", "names that are no set", "other names"],
)
def test_a_host_that_does_not_fit_is_refused_and_left_as_it_was(change: str, fault: str, tmp_path: Path) -> None:
    program = f"""
module = importlib.import_module("aorta.run.dispatcher")
{change}
before = {{key: getattr(importlib.import_module(key[0]), key[1], None) for key in before}}
try:
    attaching.attach()
except attaching.HostMismatch as error:
    print(error)
for (module, name), function in before.items():
    assert getattr(importlib.import_module(module), name, None) is function
"""
    message = _python(program, tmp_path).ok().out
    assert fault in message
    assert f"aorta-collectors {version('aorta-collectors')}" in message
    assert f"amd-aorta {version('amd-aorta')}" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("collect", [[], ["--collect", "layer_numerics"]], ids=["unasked", "asked"])
def test_a_sweep_of_a_host_that_does_not_fit_ends_with_one_clear_error(collect: list[str], tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml")
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out", *collect, "--", "python", "-c", "print(1)"]
    ran = run([PYTHON, "-c", CHANGED_HOST, *words], tmp_path)
    assert ran.code != 0
    assert "Traceback" not in ran.err
    (line,) = [line for line in ran.err.splitlines() if "does not fit" in line]
    assert f"aorta-collectors {version('aorta-collectors')}" in line
    assert f"amd-aorta {version('amd-aorta')}" in line
    assert "uninstall aorta-collectors" in line
    assert not (tmp_path / "out").exists()


def _scrubbed(text: str) -> str:
    """Without what differs between any two runs."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(\.\d+)?", "TIME", text)
    return re.sub(r"\d+\.\d+ ?(ms|s|sec)\b", "DURATION", text)


def _tree(directory: Path) -> list[str]:
    return sorted(_scrubbed(str(path.relative_to(directory))) for path in directory.rglob("*"))


RUNS = {
    "workload": (["--recipe", "workload.yaml", "--output", "out"], 0),
    "workload dry run": (["--recipe", "workload.yaml", "--output", "out", "--dry-run"], 0),
    "probe": (["--recipe", "probe.yaml", "--output", "out", "--", "python", "-c", "print(1); exit(3)"], 0),
    "probe dry run": (["--recipe", "probe.yaml", "--output", "out", "--dry-run", "--", "python", "x.py"], 0),
    "unknown collector": (["--recipe", "workload.yaml", "--output", "out", "--collect", "nonesuch"], 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_sweep_that_asks_for_nothing_of_ours_is_what_it_was_without_us(name: str, tmp_path: Path) -> None:
    words, code = RUNS[name]
    seen = []
    for plugin in (False, True):
        directory = tmp_path / ("with" if plugin else "without")
        directory.mkdir()
        cells = [cell("baseline"), cell("again")]
        content = {"workload": "inference", "steps": 1, "workload_config": TINY_INFERENCE, "cells": cells}
        write_recipe(directory / "workload.yaml", **content)
        probe_recipe(directory / "probe.yaml")
        ran = aorta(["sweep", "run", *words], directory, plugin=plugin)
        assert ran.code == code, ran.err
        (directory / "aorta_without_plugin.py").unlink(missing_ok=True)
        seen.append((_scrubbed(ran.out), _tree(directory)))
    assert seen[0] == seen[1]
    assert ("out" in seen[0][1]) == (name in ("workload", "probe"))
