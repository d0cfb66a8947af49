"""Further modes of the host's flows: variables in a file, time limits, containers named in a recipe, --strict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.host.support import (
    PROGRAM,
    Sweep,
    cell,
    mitigations,
    once,
    probe_recipe,
    sweep_command,
    sweep_workload,
    workload_recipe,
)
from tests.support import summary

pytestmark = pytest.mark.sweep

SPEC = {"watch": [{"scope": {"types": ["Linear"]}, "tensors": ["output"]}], "sample_every": 1}

#: As a container sees it: nothing but the file's variables.
CONTAINED = """
import os, sys
lines = open(os.environ["AORTA_ENV_FILE"]).read().splitlines()
env = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
open("variables", "w").write("\\n".join(env))
env.update(PATH=os.environ["PATH"], OMP_NUM_THREADS="1")
os.execve(sys.executable, ["python", "-m", "aorta_collectors.frontend", "train.py"], env)
"""


def test_a_command_that_sees_the_file_alone_is_captured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "contained.py").write_text(CONTAINED)
    (tmp_path / "launch.sh").write_text("python contained.py\n")
    # Several lines in the recipe: the file has room for one.
    collect = {"layer_numerics": {"NANLOG_SPEC": json.dumps(SPEC, indent=2)}}
    recipe = probe_recipe(tmp_path / "r.yaml", ["steps"], env_passthrough_mode="file", collect=collect)
    # A channel that the collect: block does not ask for is taken away in the file as it is in the environment.
    variables = {"TRAIN_ARGS": "--steps 3", "NANLOG_CHANNELS": "weight"}
    bundles = mitigations(tmp_path / "m.json", {"steps": variables})
    sweep = sweep_command(tmp_path, recipe, ["sh", "launch.sh"], "--mitigations-file", str(bundles))
    sweep.ran.ok()
    assert sweep.receipt("steps")["verdict"] == "captured"
    found = summary(sweep.artifacts("steps"))
    assert (found["steps_seen"], found["records_written"]) == (3, 6)
    names = set((tmp_path / "variables").read_text().splitlines())
    assert names >= {"TRAIN_ARGS", "NANLOG_DIR", "NANLOG_SPEC", "NANLOG_RUN_ID"}
    assert not names & {"PYTHONPATH", "NANLOG_CHANNELS"}
    # The trial's record has what the recipe set for the cell, and no more.
    assert sweep.trial("steps")["config"]["_aorta_probe_extras"]["cell_env_vars"] == variables


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A program that trains and then waits, in a shell script that does not end with it either."""

    def build(directory: Path) -> Sweep:
        (directory / "train.py").write_text(PROGRAM + "import time\ntime.sleep(600)\n")
        (directory / "launch.sh").write_text("python train.py\n")
        recipe = probe_recipe(directory / "r.yaml", timeout_per_trial=8, collect={"layer_numerics": {}})
        return sweep_command(directory, recipe, ["sh", "launch.sh"])

    return once(tmp_path_factory, "limited", build)


def test_a_trial_that_takes_too_long_leaves_what_it_saw(limited: Sweep) -> None:
    receipt = limited.receipt()
    assert receipt["verdict"] == "incomplete"
    assert receipt["metrics"]["layer_numerics_steps"] == 5
    assert receipt["route"] == "environment"
    assert limited.command()["timed_out"] is True
    assert limited.command()["verdict"] in ("error", "fail")


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A workload in cells whose environments are containers, which the host names to it and does not start."""

    def image(**env: str) -> dict[str, object]:
        return {"docker": "example.org/image@sha256:0", "env": env}

    def build(directory: Path) -> Sweep:
        cells = [
            cell("contained", environment=image(TRAINED="inside")),
            cell("quiet", environment=image(AORTA_COLLECTORS="off")),
            cell("lacking", collect={"layer_numerics": {"NANLOG_WATCH_TYPES": "Conv2d"}}),
        ]
        recipe = workload_recipe(
            directory / "r.yaml", "inference", steps=1, cells=cells, collect=["layer_numerics"], save_logs=True
        )
        dry = sweep_workload(directory, recipe, "--dry-run")
        assert "  quiet:\n    off: " in dry.ran.ok().out
        return sweep_workload(directory, recipe, "--strict")

    return once(tmp_path_factory, "contained", build)


def test_a_container_that_a_recipe_names_is_no_obstacle_to_a_workload_in_this_process(contained: Sweep) -> None:
    assert contained.receipt("contained")["verdict"] == "captured"
    assert contained.receipt("quiet")["verdict"] == "off"
    for name in ("contained", "quiet", "lacking"):
        assert (contained.cell_dir(name) / "trial_d0_m0_t0.stderr.log").is_file()


def test_strict_does_not_hide_the_evidence(contained: Sweep) -> None:
    assert contained.ran.code != 0
    assert contained.receipt("lacking")["verdict"] == "unattached"
    assert "lacking, trial 0: unattached" in contained.ran.out
    assert "Traceback" not in contained.ran.err
