"""`tensors` and `memory` in real sweeps beside `layer_numerics`: each has its receipt, whatever becomes of a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host import pulse
from tests.host.support import PROGRAM, Sweep, cell, mitigations, once, probe_recipe, workload_recipe
from tests.support import records, run, summary

pytestmark = pytest.mark.sweep

ALL = ("tensors", "memory", "layer_numerics")
ASK = {
    "tensors": {"points": "after_forward", "scope": "(root),0", "keep": "values", "steps": "1-2"},
    "memory": {"points": "before_forward,after_backward"},
    "layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"},
}
MODES = {
    "raises": {"TRAIN_ARGS": "--mode raise"},
    "idle": {"TRAIN_ARGS": "--mode no-model"},
}


def _verdicts(sweep: Sweep, name: str) -> dict[str, str]:
    return {collector: sweep.receipt(name, collector=collector)["verdict"] for collector in ALL}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def build(directory: Path) -> Sweep:
        (directory / "train.py").write_text(PROGRAM)
        bundles = mitigations(directory / "m.json", MODES)
        recipe = probe_recipe(directory / "r.yaml", ["none", *MODES], collect=ASK)
        return pulse.sweep(directory, recipe, "--mitigations-file", str(bundles), command=["python", "train.py"])

    return once(tmp_path_factory, "all_three_collectors", build)


def test_all_three_observe_one_program(commands: Sweep) -> None:
    assert _verdicts(commands, "none") == dict.fromkeys(ALL, "captured")
    assert commands.command("none")["verdict"] == "pass"
    assert commands.command("none")["argv"].count("-m") == 1
    seen = {collector: summary(commands.artifacts(collector=collector)) for collector in ALL}
    assert {collector: content["steps_seen"] for collector, content in seen.items()} == dict.fromkeys(ALL, 5)
    assert {content["pid"] for content in seen.values()} == {seen["memory"]["pid"]}
    lines = records(commands.artifacts(collector="tensors") / "tensors_rank0.jsonl")
    assert [(line["name"], line["invocation"]) for line in lines] == [
        (f"after_forward:{name}.output", step) for step in (0, 1) for name in ("0", "(root)")
    ]
    points = records(commands.artifacts(collector="memory") / "memory_rank0.jsonl")
    assert [point["name"] for point in points] == ["before_forward", "after_backward"] * 5


def test_the_matrix_has_numbers_of_each(commands: Sweep) -> None:
    means = {name: row["mean"] for name, row in commands.cell("none")["metrics_summary"].items()}
    assert (means["tensors_observed"], means["memory_points"], means["layer_numerics_steps"]) == (4, 10, 5)


def test_a_crash_stays_a_failure_with_what_came_before_it(commands: Sweep) -> None:
    assert commands.command("raises")["verdict"] == "fail"
    assert _verdicts(commands, "raises") == dict.fromkeys(ALL, "incomplete")
    assert len(records(commands.artifacts("raises", collector="tensors") / "tensors_rank0.jsonl")) == 4


def test_a_program_without_a_model_does_not_pass(commands: Sweep) -> None:
    assert commands.command("idle")["verdict"] == "error"
    assert _verdicts(commands, "idle") == dict.fromkeys(ALL, "unattached")
    assert commands.ran.code == 1
    assert "6 of 9 requests for evidence not satisfied (cells: raises-none, idle-none)" in commands.ran.err


def test_verify_agrees_and_a_changed_file_is_found(commands: Sweep, tmp_path: Path) -> None:
    verify = ["aorta-collectors", "verify", str(commands.run_dir / "none-none")]
    assert "3 of 3 requests satisfied" in run(verify, tmp_path).ok().out
    written = commands.artifacts(collector="tensors") / "tensors_rank0.jsonl"
    content = written.read_text()
    written.write_text(content.replace("after_forward:0", "after_forward:1"))
    try:
        assert run(verify, tmp_path).code == 1
    finally:
        written.write_text(content)


def test_a_workload_of_the_host_is_observed_by_all_three(tmp_path: Path) -> None:
    forward = {"tensors": {"points": "after_forward"}, "memory": {"points": "after_forward"}, "layer_numerics": {}}
    cells = [cell("baseline"), cell("bare", "no_collectors")]
    recipe = workload_recipe(tmp_path / "r.yaml", "inference", collect=forward, cells=cells)
    sweep = pulse.sweep(tmp_path, recipe)
    sweep.ran.ok()
    assert _verdicts(sweep, "baseline") == dict.fromkeys(ALL, "captured")
    assert _verdicts(sweep, "bare") == dict.fromkeys(ALL, "off")
    assert records(sweep.artifacts("baseline", collector="tensors") / "tensors_rank0.jsonl")


def test_ranks_of_a_training_under_torchrun_hand_over_all_three(tmp_path: Path) -> None:
    recipe = workload_recipe(tmp_path / "r.yaml", collect=dict.fromkeys(ALL))
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out"]
    launcher = ["torchrun", "--standalone", "--nproc_per_node=2", "-m", "aorta_collectors"]
    ran = run([*launcher, *words], tmp_path).ok()
    (matrix,) = (tmp_path / "out").glob("*/*/*/matrix.json")
    sweep = Sweep(ran, matrix.parent, "workload")
    assert _verdicts(sweep, "baseline") == dict.fromkeys(ALL, "captured")
    for collector in ALL:
        both = [summary(sweep.artifacts("baseline", collector=collector), rank) for rank in (0, 1)]
        assert [(content["rank"], content["world_size"]) for content in both] == [(0, 2), (1, 2)]


def test_a_workload_that_ignores_the_request_does_not_pass(tmp_path: Path) -> None:
    env = pulse.install(tmp_path / "site")
    recipe = pulse.living_recipe(tmp_path / "r.yaml", collect=["tensors", "memory"])
    sweep = pulse.sweep(tmp_path, recipe, env=env)
    assert sweep.ran.code == 1
    for collector in ("tensors", "memory"):
        assert sweep.receipt("baseline", collector=collector)["verdict"] in ("missing", "unattached")
    assert sweep.trial("baseline")["exit_status"] == "infrastructure_failed"


def test_a_dry_run_shows_all_three_in_one_command(tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", collect=ASK)
    ran = pulse.sweep(tmp_path, recipe, "--dry-run", command=["python", "train.py"]).ran.ok()
    assert "TENSORS_POINTS=after_forward" in ran.out
    assert "MEMORY_POINTS=before_forward,after_backward" in ran.out
    assert ran.out.count("-m aorta_collectors.frontend train.py") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensors": {"points": "after_frwrd"}}, "recipe.collect.tensors.points"),
        ({"memory": {"step": "3"}}, "recipe.collect.memory.step: unknown option; did you mean steps?"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", collect=options)
    ran = pulse.sweep(tmp_path, recipe, command=["python", "train.py"]).ran
    assert ran.code == 1
    assert message in ran.err
    assert not (tmp_path / "out").exists()
