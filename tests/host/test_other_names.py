"""Collectors under names that aorta does not know by itself: our sweep treats them as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host import pulse
from tests.host.support import Sweep, aorta, cell, mitigations, once, probe_recipe, read_json, sweep_command
from tests.support import PYTHON, run

pytestmark = pytest.mark.sweep

ASK = {"pulse": {"BEATS": "2"}}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a package that offers the collector `pulse` and the workload `living`."""
    return pulse.install(tmp_path_factory.mktemp("pulse") / "site")


def _live(env: dict[str, str]) -> list[str]:
    return ["python", str(Path(env["PYTHONPATH"]) / "live.py")]


@pytest.fixture(scope="module")
def commands(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The probe flow: one cell for each way in which a command can end."""

    def build(directory: Path) -> Sweep:
        bundles = mitigations(directory / "m.json", {"dead": {"DEAD": "1"}, "fails": {"EXIT": "3"}})
        axis = ["none", "dead", "fails", "no_collectors"]
        recipe = probe_recipe(directory / "r.yaml", axis, collect=ASK, retain={"on_pass": "summary"})
        return pulse.sweep(directory, recipe, "--mitigations-file", str(bundles), command=_live(env), env=env)

    return once(tmp_path_factory, "pulse_probe", build)


@pytest.fixture(scope="module", params=["in_process", "process"])
def living(request: pytest.FixtureRequest, env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The workload flow, in the sweep's own process and with one for each trial."""

    def build(directory: Path) -> Sweep:
        cells = [cell("own", collect={"pulse": {"BEATS": "7"}}), cell("dead", workload_config={"alive": False})]
        recipe = pulse.living_recipe(directory / "r.yaml", cells=cells, trial_isolation=request.param)
        return pulse.sweep(directory, recipe, env=env)

    return once(tmp_path_factory, f"pulse_{request.param}", build)


class TestCommands:
    def test_evidence_is_captured_summarised_and_retained(self, commands: Sweep) -> None:
        receipt = commands.receipt("fails", collector="pulse")
        assert (receipt["verdict"], receipt["metrics"]) == ("captured", {"pulse_beats": 2})
        assert commands.receipt(collector="pulse")["verdict"] == "pruned"
        assert {path.name for path in commands.artifacts(collector="pulse").iterdir()} == {"beats_total"}
        assert commands.cell("none")["metrics_summary"]["pulse_beats"]["mean"] == 2
        assert commands.command("none")["verdict"] == "pass"

    def test_a_pass_without_it_is_an_error_and_a_failure_stays_one(self, commands: Sweep) -> None:
        assert commands.receipt("dead", collector="pulse")["verdict"] == "missing"
        assert commands.command("dead")["verdict"] == "error"
        assert commands.command("fails")["verdict"] == "fail"
        assert commands.ran.code == 1
        assert "requests for evidence not satisfied (cells: dead-none)" in commands.ran.err

    def test_a_cell_without_collectors_is_off(self, commands: Sweep) -> None:
        assert commands.receipt("no_collectors", collector="pulse")["verdict"] == "off"

    def test_verify_agrees(self, commands: Sweep, env: dict[str, str], tmp_path: Path) -> None:
        ran = run(["aorta-collectors", "verify", str(commands.run_dir)], tmp_path, env)
        assert ran.code == 1
        assert "3 of 4 requests satisfied" in ran.out

    def test_a_stock_sweep_knows_it_by_the_time_it_comes_to_it_and_ours_resumes_that(
        self, env: dict[str, str], tmp_path: Path
    ) -> None:
        recipe = probe_recipe(tmp_path / "r.yaml", collect=ASK)
        stock = sweep_command(tmp_path, recipe, _live(env), env=env)
        stock.ran.ok()
        assert stock.receipt(collector="pulse")["verdict"] == "captured"
        pulse.sweep(tmp_path, recipe, command=_live(env), env=env).ran.ok()
        assert (tmp_path / "runs").read_text() == "x"


class TestWorkloads:
    def test_a_cell_has_what_its_own_block_asks_for(self, living: Sweep) -> None:
        receipt = living.receipt("own", collector="pulse")
        assert (receipt["verdict"], receipt["metrics"]) == ("captured", {"pulse_beats": 7})
        assert living.cell("own")["metrics_summary"]["pulse_beats"]["mean"] == 7

    def test_one_that_ignores_the_request_does_not_pass(self, living: Sweep) -> None:
        assert living.receipt("dead", collector="pulse")["verdict"] == "missing"
        assert living.trial("dead")["exit_status"] == "infrastructure_failed"
        assert living.ran.code == 1
        assert "requests for evidence not satisfied (cells: dead)" in living.ran.err

    def test_a_script_is_a_command_too(self, env: dict[str, str], tmp_path: Path) -> None:
        config = {"argv": _live(env)}
        recipe = pulse.living_recipe(tmp_path / "r.yaml", workload="script", workload_config=config)
        swept = pulse.sweep(tmp_path, recipe, env=env)
        swept.ran.ok()
        assert swept.receipt("baseline", collector="pulse")["metrics"] == {"pulse_beats": 3}


class TestRefusals:
    def test_a_stock_sweep_of_a_workload_says_which_names_it_knows(self, env: dict[str, str], tmp_path: Path) -> None:
        recipe = pulse.living_recipe(tmp_path / "r.yaml")
        ran = aorta(["sweep", "run", "--recipe", str(recipe), "--output", "out"], tmp_path, env)
        assert ran.code == 1
        known = "['amd_log', 'layer_numerics', 'numerics', 'proton', 'rocprof']"
        assert ran.err == f"Error: recipe.collect: unknown collector recipe(s) ['pulse']; valid: {known}\n"
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("content", "words", "message"),
        [
            ({"collect": {"pulse": {"BEATS": "many"}}}, [], "recipe.collect.pulse.BEATS: "),
            (
                {"cells": [cell("quick", collect={"pulse": {"BEATS": "0"}})]},
                [],
                "recipe.cells[quick].collect.pulse.BEATS: ",
            ),
            (
                {"collect": {"pulse": {"BEETS": "1"}}},
                [],
                "recipe.collect.pulse.BEETS: unknown option; did you mean BEATS?",
            ),
            ({"collect": {"puls": {}}}, [], "unknown collector recipe(s) ['puls']; valid: ["),
            ({}, ["--collect", "pulse,tensr"], "unknown collector recipe(s) ['tensr']; valid: ["),
        ],
    )
    def test_what_cannot_be_honoured_is_refused_with_its_place(
        self, content: dict[str, Any], words: list[str], message: str, env: dict[str, str], tmp_path: Path
    ) -> None:
        ran = pulse.sweep(tmp_path, pulse.living_recipe(tmp_path / "r.yaml", **content), *words, env=env).ran
        assert ran.code == 1
        assert message in ran.err
        assert ("'pulse'" in ran.err) == ("valid: [" in message)
        assert not (tmp_path / "out").exists()

    def test_a_program_that_runs_trials_itself_can_ask_once_it_has_attached(
        self, env: dict[str, str], tmp_path: Path
    ) -> None:
        program = """
from pathlib import Path
from aorta_collectors.host.attach import attach, detach
from aorta.run.dispatcher import RunRequest, run_trials
request = RunRequest(workload="living", trials=1, results_dir=Path("results"), collect=("pulse",))
attach()
print(run_trials(request)[0].exit_status)
detach()
try:
    run_trials(request)
except ValueError as error:
    print(error)
"""
        lines = run([PYTHON, "-c", program], tmp_path, env).ok().out.splitlines()
        assert "ok" in lines
        assert lines[-1].startswith("Unknown collector recipes: ['pulse']. Valid: ['amd_log'")


class TestSubmit:
    def test_a_job_knows_the_name(self, env: dict[str, str], tmp_path: Path) -> None:
        pytest.importorskip("submitit", reason="submitit, of the extra `submit`, is not installed")
        probe_recipe(tmp_path / "r.yaml", collect=ASK)
        words = ["aorta-collectors", "submit", "r.yaml", "--executor", "local", "--output", "out", "--", *_live(env)]
        ran = run(words, tmp_path, env).ok()
        assert "1 of 1 cells done" in ran.out
        (receipt,) = (tmp_path / "out").rglob("receipt_*_pulse.json")
        assert read_json(receipt)["metrics"] == {"pulse_beats": 2}
