"""Which requests a sweep and `verify` answer for: those of this run, all of them, and nothing else that lies about."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import Sweep, cell, once, probe_recipe, sweep_command, sweep_workload, workload_recipe
from tests.support import TRAIN, Ran, run, summary

pytestmark = pytest.mark.sweep

ASK = ("--collect", "layer_numerics")
COUNTING = 'with open("runs", "a") as stream: stream.write("x")\n' + TRAIN

#: Leaves a file of its own beside its evidence that is named as the host names its records.
LITTERING = (
    """
import json, os
from pathlib import Path

if "NANLOG_DIR" in os.environ:
    beside = Path(os.environ["NANLOG_DIR"]).parent
    (beside / "trial_d0_m0_t9.json").write_text(json.dumps({"loss": [1, 2]}))
"""
    + TRAIN
)

COLLECTOR = """
import contextlib, os
from pathlib import Path
from aorta_collectors.api import Collector, Verdict, Verification


def arm(started_in):
    Path(os.environ["AMD_LOG_DIR"], "armed").write_text(started_in)


class AmdLog(Collector):
    name = output_subdir = "amd_log"
    schema = {"type": "object", "additionalProperties": False, "properties": {}}

    def plan(self, launch, options, capture):
        return launch.with_env({"AMD_LOG_DIR": str(capture.artifacts)}).armed_with("small_collector:arm")

    @contextlib.contextmanager
    def armed(self, options, capture):
        yield

    def verify(self, artifacts, expected):
        if "armed" not in artifacts.sizes():
            return Verification(Verdict.MISSING, "was not armed in the program")
        return Verification(Verdict.CAPTURED, "was armed in the program")
"""


def _verify(run_dir: Path, *options: str) -> Ran:
    return run(["aorta-collectors", "verify", *options, str(run_dir)], run_dir.parent)


def _lacking(run_dir: Path) -> list[dict[str, Any]]:
    """What `verify` finds unsatisfied; there must be something."""
    ran = _verify(run_dir, "--json")
    assert ran.code == 1, ran.out + ran.err
    return [finding for finding in json.loads(ran.out) if not finding["satisfied"]]


def test_only_the_trials_of_this_run_are_held_against_the_request(tmp_path: Path) -> None:
    """A recipe that asks for fewer trials than were run before leaves the others as they are."""
    (tmp_path / "train.py").write_text(COUNTING)

    def sweep(trials: int) -> Sweep:
        recipe = probe_recipe(tmp_path / "r.yaml", trials=trials)
        return sweep_command(tmp_path, recipe, ["python", "train.py"], *ASK)

    first = sweep(2)
    first.ran.ok()
    (first.cell_dir("none") / "receipt_d0_m0_t1_layer_numerics.json").unlink()
    for _ in range(2):
        again = sweep(1)
        again.ran.ok()
        assert "captured" in again.ran.out
        assert again.receipt(trial=0)["verdict"] == "captured"
    assert (tmp_path / "runs").read_text() == "xx"


def _workload(directory: Path) -> Sweep:
    cells = [cell("baseline"), cell("other")]
    collect = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
    recipe = workload_recipe(directory / "r.yaml", "inference", steps=1, trials=2, cells=cells, collect=collect)
    return sweep_workload(directory, recipe)


def _probe(directory: Path) -> Sweep:
    (directory / "train.py").write_text(LITTERING)
    recipe = probe_recipe(directory / "r.yaml", ["none", "no_collectors"])
    return sweep_command(directory, recipe, ["python", "train.py"], *ASK)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    """A sweep of each flow. The command of the probe sweep leaves files that look like records of the host."""
    return {
        "workload": once(tmp_path_factory, "finished_workload", _workload),
        "probe": once(tmp_path_factory, "finished_probe", _probe),
    }


def _copy(sweep: Sweep, tmp_path: Path) -> Sweep:
    sweep.ran.ok()
    run_dir = Path(shutil.copytree(sweep.run_dir, tmp_path / "run"))
    _verify(run_dir).ok()
    return Sweep(sweep.ran, run_dir, sweep.flow)


@pytest.mark.parametrize(("flow", "directory", "trials"), [("workload", "cells/other", 2), ("probe", "none-none", 1)])
class TestWhatIsGone:
    """The run says in its matrix which trials it had, so a cell that is taken away is missed."""

    def test_a_removed_cell_is_missing(
        self, finished: dict[str, Sweep], flow: str, directory: str, trials: int, tmp_path: Path
    ) -> None:
        sweep = _copy(finished[flow], tmp_path)
        shutil.rmtree(sweep.run_dir / directory)
        lacking = _lacking(sweep.run_dir)
        assert {finding["verdict"] for finding in lacking} == {"missing"}
        assert len(lacking) in (1, trials)
        assert {finding["cell"] for finding in lacking} == {Path(directory).name}
        shown = _verify(sweep.run_dir)
        assert shown.code == 1
        assert Path(directory).name in shown.out

    def test_a_removed_trial_record_is_missing(
        self, finished: dict[str, Sweep], flow: str, directory: str, trials: int, tmp_path: Path
    ) -> None:
        sweep = _copy(finished[flow], tmp_path)
        (record,) = (sweep.run_dir / directory).glob("*/trial_d0_m0_t0.json")
        record.unlink()
        (finding,) = _lacking(sweep.run_dir)
        assert finding["verdict"] == "missing"
        assert finding["cell"] == Path(directory).name
        assert finding["trial"].endswith("_t0")


class TestForeignFiles:
    """A file with the name of a trial's record and something else in it is no trial."""

    @pytest.mark.parametrize("content", ['{"loss": [1, 2]}', "[1, 2]", '"x"', '{"config": null, "trial_id": 3}'])
    def test_verify_passes_them_by(self, finished: dict[str, Sweep], content: str, tmp_path: Path) -> None:
        sweep = _copy(finished["workload"], tmp_path)
        (sweep.run_dir / "plots").mkdir()
        for directory in (sweep.run_dir, sweep.run_dir / "plots", sweep.artifacts("baseline").parent):
            (directory / "trial_d0_m0_t9.json").write_text(content)
        assert "4 of 4 requests satisfied" in _verify(sweep.run_dir).ok().out

    def test_a_sweep_whose_command_leaves_one_is_satisfied(self, finished: dict[str, Sweep]) -> None:
        sweep = finished["probe"]
        assert (sweep.artifacts().parent / "trial_d0_m0_t9.json").exists()
        sweep.ran.ok()
        assert sweep.receipt()["verdict"] == "captured"
        assert "2 of 2 requests satisfied" in _verify(sweep.run_dir).ok().out


def test_three_collectors_are_all_armed_in_the_program(tmp_path: Path) -> None:
    """Both of ours, and one of another package."""
    info = tmp_path / "site" / "small_collector-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: small-collector\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aorta.collectors]\namd_log = small_collector:AmdLog\n")
    (info.parent / "small_collector.py").write_text(COLLECTOR)
    (tmp_path / "train.py").write_text(TRAIN)
    names = ["numerics", "amd_log", "layer_numerics"]
    recipe = probe_recipe(tmp_path / "r.yaml", collect=names)
    env = {"PYTHONPATH": str(info.parent)}
    sweep = sweep_command(tmp_path, recipe, ["python", "train.py"], env=env)
    sweep.ran.ok()
    for name in names:
        receipt = sweep.receipt(collector=name)
        assert receipt["verdict"] == "captured", receipt["reason"]
    assert summary(sweep.artifacts())["steps_seen"] == 5
    # The command has ours in it once, however many of them there are.
    assert sweep.command()["argv"].count("-m") == 1
