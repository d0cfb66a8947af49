"""`aorta-collectors sweep`: the words, the output and the exit codes of `aorta sweep`, in the same process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host import pulse
from tests.host.support import cell, probe_recipe, workload_recipe
from tests.support import PYTHON, Ran, run

pytestmark = pytest.mark.sweep

#: A host that knows fewer names than it should.
CHANGED_HOST = """
import aorta.run.collectors as collectors
collectors.KNOWN_RECIPES = frozenset({"numerics"})
from aorta_collectors.cli import main
main()
"""


def _both(words: list[str], cwd: Path) -> tuple[Ran, Ran]:
    """What aorta and we say to the same words."""
    return run(["aorta", "sweep", *words], cwd), run(["aorta-collectors", "sweep", *words], cwd)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list-mitigations"], 0),
        (["list-patterns", "--show-version"], 2),
        (["run", "--help"], 0),
        (["run", "--recipe", "none.yaml"], 2),
        (["run", "--recipe", "r.yaml", "python", "x.py"], 2),
        (["run", "--recipe", "bad.yaml"], 1),
        (["run", "--recipe", "r.yaml", "--dry-run", "--", "python", "x.py", "--help"], 0),
        (["walk"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_answers_as_aorta_does(words: list[str], code: int, tmp_path: Path) -> None:
    probe_recipe(tmp_path / "r.yaml", collect=["layer_numerics"])
    workload_recipe(tmp_path / "bad.yaml", trails=1)
    host, ours = _both(words, tmp_path)
    assert ours.code == host.code == code, host.err
    assert ours.out.replace("Usage: aorta-collectors sweep", "Usage: aorta sweep") == host.out
    assert ours.err.replace("aorta-collectors sweep", "aorta sweep") == host.err


def test_its_own_help_says_when_it_is_needed_and_lists_what_aorta_has(tmp_path: Path) -> None:
    host, ours = _both(["--help"], tmp_path)
    assert ours.ok().out.partition("Commands:")[2] == host.ok().out.partition("Commands:")[2]
    assert "refuses all names in its collect: blocks but rocprof" in " ".join(ours.out.split())


def test_it_is_a_module_too(tmp_path: Path) -> None:
    command = run(["aorta-collectors", "sweep", "run", "--help"], tmp_path).ok()
    assert run([PYTHON, "-m", "aorta_collectors", "sweep", "run", "--help"], tmp_path).ok().out == command.out


def test_a_host_that_does_not_fit_is_one_line(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml")
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out", "--", "python", "-c", "print(1)"]
    ran = run([PYTHON, "-c", CHANGED_HOST, *words], tmp_path)
    assert ran.code == 1
    assert "does not fit amd-aorta" in ran.err
    assert "aorta.run.collectors.KNOWN_RECIPES lacks amd_log, layer_numerics, proton, rocprof" in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_check_says_that_a_recipe_needs_it(tmp_path: Path) -> None:
    env = pulse.install(tmp_path / "site")
    asks, unasked = cell("asks", collect=["numerics", "pulse"]), cell("unasked")
    words = ["aorta-collectors", "check", "r.yaml"]
    pulse.living_recipe(tmp_path / "r.yaml", cells=[asks, unasked], collect=[])
    said = "for aorta-collectors sweep run: in this recipe aorta alone does not know pulse"
    assert said in run(words, tmp_path, env).ok().out
    assert '"other_names": [\n    "pulse"\n  ]' in run([*words, "--json"], tmp_path, env).ok().out
    # aorta has loaded the plugin by the time it comes to these.
    probe_recipe(tmp_path / "r.yaml", collect=["pulse"])
    assert "aorta alone" not in run([*words, "--", "python", "x.py"], tmp_path, env).ok().out
    pulse.living_recipe(tmp_path / "r.yaml", collect=[])
    assert "aorta alone" not in run([*words, "--collect", "pulse"], tmp_path, env).ok().out
