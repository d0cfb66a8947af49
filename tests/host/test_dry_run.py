"""`--dry-run` shows each cell's launch, says that nothing has been captured, and leaves nothing behind."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.host.support import aorta, cell, probe_recipe, workload_recipe
from tests.support import Ran

pytestmark = pytest.mark.sweep

OPTIONS = {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_WATCH_TYPES": "Linear,Layer Norm"}


def _dry(tmp_path: Path, recipe: Path, *rest: str, env: dict[str, str] | None = None) -> Ran:
    before = sorted(tmp_path.rglob("*"))
    ran = aorta(["sweep", "run", "--recipe", str(recipe), "--dry-run", "--output", "out", *rest], tmp_path, env)
    assert sorted(tmp_path.rglob("*")) == before
    return ran


def _plan(ran: Ran, name: str) -> list[str]:
    """What is printed below our heading for one cell."""
    lines = ran.out[ran.out.index("Collectors (dry run") :].splitlines()
    start = lines.index(f"  {name}:") + 1
    rest = [index for index, line in enumerate(lines) if index >= start and not line.startswith("    ")]
    return [line.strip() for line in lines[start : rest[0] if rest else None]]


def test_a_commands_launch_is_shown_as_one_line_for_a_shell(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", ["none", "no_collectors"], collect={"layer_numerics": OPTIONS})
    arguments = ["my train.py", "--name", "it's $HOME; rm *"]
    ran = _dry(tmp_path, recipe, "--", "python", "-u", *arguments).ok()
    assert "nothing has been captured" in ran.out
    *_, line = _plan(ran, "none-none")
    words = shlex.split(line)
    python = words.index("python")
    variables = dict(word.split("=", 1) for word in words[:python])
    assert variables.items() >= OPTIONS.items()
    assert Path(variables["NANLOG_DIR"]).name == "layer_numerics"
    assert words[python:] == ["python", "-u", "-m", "aorta_collectors.frontend", *arguments]
    assert "off" in " ".join(_plan(ran, "no_collectors-none"))


def test_variables_that_the_sweep_removes_are_shown_too(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml")
    ambient = {"NANLOG_CHANNELS": "weight"}
    ran = _dry(tmp_path, recipe, "--collect", "layer_numerics", "--", "python", "train.py", env=ambient).ok()
    words = shlex.split(_plan(ran, "none-none")[-1])
    assert words[:3] == ["env", "-u", "NANLOG_CHANNELS"]
    assert not any(word.startswith("NANLOG_CHANNELS=") for word in words)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            ["torchrun", "--standalone", "--nproc_per_node=2", "train.py"],
            ["torchrun", "--standalone", "--nproc_per_node=2", "-m", "aorta_collectors.frontend", "train.py"],
        ),
        (["python", "-m", "pkg.train"], ["python", "-m", "aorta_collectors.frontend", "-m", "pkg.train"]),
        (["bash", "launch.sh"], ["bash", "launch.sh"]),
    ],
    ids=["torchrun", "module", "shell script"],
)
def test_each_form_of_launch_is_planned(command: list[str], shown: list[str], tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml")
    ran = _dry(tmp_path, recipe, "--collect", "layer_numerics", "--", *command).ok()
    words = shlex.split(_plan(ran, "none-none")[-1])
    assert words[-len(shown) :] == shown
    assert any(word.startswith("PYTHONPATH=") for word in words)


def test_a_workload_is_shown_with_its_configuration(tmp_path: Path) -> None:
    cells = [
        cell("baseline"),
        cell("bare", "no_collectors"),
        cell("unasked", collect=[]),
        cell("replaced", collect={"layer_numerics": {"NANLOG_CHANNELS": "weight"}}),
    ]
    recipe = workload_recipe(tmp_path / "r.yaml", cells=cells, collect={"layer_numerics": OPTIONS})
    ran = _dry(tmp_path, recipe).ok()
    assert "nothing has been captured" in ran.out
    plan = _plan(ran, "baseline")
    assert "in-process" in plan[0]
    variables = dict(word.split("=", 1) for word in shlex.split(plan[-1]))
    assert variables.items() >= OPTIONS.items()
    assert "NANLOG_DIR" in variables
    assert "NANLOG_CHANNELS=weight" in _plan(ran, "replaced")[-1]
    assert "NANLOG_SAMPLE_EVERY" not in _plan(ran, "replaced")[-1]
    assert "off" in " ".join(_plan(ran, "bare"))
    assert "  unasked:" not in ran.out.splitlines()


def test_the_whole_launch_that_is_shown_can_be_run(tmp_path: Path) -> None:
    """Pasted into a shell, the planned line runs the program with the logger armed."""
    from tests.support import TRAIN, run, summary

    (tmp_path / "train.py").write_text(TRAIN)
    ran = _dry(
        tmp_path, probe_recipe(tmp_path / "r.yaml"), "--collect", "layer_numerics", "--", "python", "train.py"
    ).ok()
    run(["sh", "-c", _plan(ran, "none-none")[-1]], tmp_path).ok()
    assert summary(tmp_path / "TRIAL_DIR" / "layer_numerics")["run_id"] == "RUN_ID"


def test_a_dry_run_with_a_bad_option_fails(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", collect={"layer_numerics": {"NANLOG_SAMPLE_EVERY": "often"}})
    ran = _dry(tmp_path, recipe, "--", "python", "train.py")
    assert ran.code == 1
    assert "must be an integer >= 1" in ran.err
    assert "captured" not in ran.out


def test_a_launch_that_the_options_do_not_allow_is_shown_as_refused(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", collect={"layer_numerics": {"frontend": "aorta"}})
    ran = _dry(tmp_path, recipe, "--", "bash", "launch.sh")
    assert "refused" in " ".join(_plan(ran, "none-none"))
    assert "frontend: aorta needs a command that ends in a python script" in ran.out
    assert ran.code == 1


def test_a_dry_run_that_asks_for_nothing_says_nothing_of_ours(tmp_path: Path) -> None:
    ran = _dry(tmp_path, probe_recipe(tmp_path / "r.yaml"), "--", "python", "train.py").ok()
    assert "ollector" not in ran.out
