"""`workload: script` in real sweeps: verdicts, step times, ranks, and processes that are gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import Sweep, cell, once, sweep_workload, write_recipe
from tests.support import BIN, interruptible

pytestmark = pytest.mark.sweep

#: A small model; what it does besides is said by its arguments.
PROGRAM = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--nan-at", type=int)
parser.add_argument("--exit-at", type=int)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--mask", action="store_true")
args = parser.parse_args()
rank = os.environ.get("RANK", "alone")
seen = {name: os.environ.get(name) for name in ("GREETING", "VARIED", "DROPPED", "WORLD_SIZE")}
with open(f"seen_{rank}.json", "w") as note:
    json.dump({"cwd": os.getcwd(), "argv": sys.argv, "stdin": sys.stdin.read(), **seen}, note)
import torch
torch.manual_seed(0)
class Mask(torch.nn.Module):
    def forward(self, scores):
        return scores.masked_fill(torch.arange(8) > 5, -torch.inf)
middle = [Mask(), torch.nn.Softmax(dim=1)] if args.mask else [torch.nn.ReLU()]
model = torch.nn.Sequential(torch.nn.Linear(4, 8), *middle, torch.nn.Linear(8, 1))
for step in range(1, args.steps + 1):
    time.sleep(args.sleep)
    batch = torch.randn(8, 4)
    if step == args.nan_at:
        batch[0, 0] = float("nan")
    model(batch).sum().backward()
    print("step", step, flush=True)
    if step == args.exit_at:
        sys.stderr.write("the last word\\n")
        sys.exit(3)
"""
#: Leaves a process behind that has left the session, and one that has an empty environment.
DAEMON = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
away = subprocess.Popen(sleep, start_new_session=True, stdin=subprocess.DEVNULL)
bare = subprocess.Popen(sleep, env={}, stdin=subprocess.DEVNULL)
open("daemons", "w").write(f"{away.pid} {bare.pid}")
"""
SLOW = "import os, time; open('slow', 'w').write(str(os.getpid())); time.sleep(600)"
TRAINING = ["python", "train.py"]


def script(name: str, argv: list[str], mitigation: str = "none", **content: Any) -> dict[str, Any]:
    config = {"argv": argv, **content.pop("config", {})}
    return cell(name, mitigation, workload_config=config, **content)


def _sweep(directory: Path, cells: list[dict[str, Any]]) -> Sweep:
    (directory / "work").mkdir()
    for name, code in (("train.py", PROGRAM), ("work/train.py", PROGRAM), ("daemon.py", DAEMON)):
        (directory / name).write_text(code)
    collect = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
    recipe = write_recipe(directory / "recipe.yaml", workload="script", steps=6, collect=collect, cells=cells)
    return sweep_workload(directory, recipe)


_RANKED = {"nproc": 2, "cwd": "work", "env": {"GREETING": "hello", "VARIED": "no", "DROPPED": None}}
#: Two sweeps, so that neither takes long where a machine is busy.
CELLS = {
    "script_training": [
        script("baseline", TRAINING),
        script("slow", [*TRAINING, "--sleep", "0.2"]),
        script("nan", [*TRAINING, "--nan-at", "4"]),
        script("exits", [*TRAINING, "--exit-at", "2"]),
        script("mask", [*TRAINING, "--mask"], collect={"layer_numerics": {"NANLOG_WATCH_TYPES": "*"}}),
    ],
    "script_commands": [
        script("off", [*TRAINING, "--nan-at", "4"], "no_collectors"),
        script("ranks", [*TRAINING, "--steps", "3"], config=_RANKED, extra_env={"VARIED": "yes", "DROPPED": "x"}),
        script("no_model", ["python", "-c", "print('nothing to see')"]),
        script("timeout", ["python", "-c", SLOW], config={"timeout_s": 3}, collect=[]),
        script("daemon", ["python", "daemon.py"], collect=[]),
        script("missing", ["./no_such_program", "--lr", "2"], collect=[]),
    ],
}
PASSED, FAILED, ERROR = (1, 0, 0), (0, 1, 0), (0, 0, 1)

#: The sweep that each cell is of.
Sweeps = Mapping[str, Sweep]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Sweeps:
    made = {name: once(tmp_path_factory, name, partial(_sweep, cells=cells)) for name, cells in CELLS.items()}
    return {cell["name"]: made[name] for name, cells in CELLS.items() for cell in cells}


def result(sweeps: Sweeps, name: str) -> dict[str, Any]:
    found: dict[str, Any] = sweeps[name].trial(name)["result"]
    return found


def log(sweeps: Sweeps, name: str, stream: str) -> str:
    return (sweeps[name].cell_dir(name) / f"trial_d0_m0_t0.subprocess.{stream}.log").read_text()


def is_gone(pid: int) -> bool:
    """Whether no such process lives; a zombie of whoever adopted it is none."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


class TestVerdicts:
    def test_each_cell_has_its_verdict_in_the_matrix(self, sweeps: Sweeps) -> None:
        found = {
            name: tuple(sweep.cell(name)[f"{kind}_count"] for kind in ("passed", "failed", "error"))
            for name, sweep in sweeps.items()
        }
        assert found == {
            "baseline": PASSED,
            "slow": PASSED,
            "nan": FAILED,
            "exits": FAILED,
            "mask": PASSED,
            "off": PASSED,
            "ranks": PASSED,
            "no_model": ERROR,
            "timeout": FAILED,
            "daemon": PASSED,
            "missing": ERROR,
        }
        # A failure is what a sweep is there to find; evidence that is missing, as no_model's, is not.
        assert (sweeps["nan"].ran.code, sweeps["no_model"].ran.code) == (0, 1)

    def test_a_nan_that_the_collector_saw_fails_the_trial_and_is_named(self, sweeps: Sweeps) -> None:
        found = result(sweeps, "nan")
        assert found["metrics"]["script_exit_code"] == 0
        assert found["first_failure_iteration"] == 4
        (detail,) = found["failure_details"]
        assert detail["error"] == "layer_numerics saw nan first in step 4, layer 0, rank 0"
        assert {key: detail[key] for key in ("type", "collector", "step", "layer", "kind", "rank")} == {
            "type": "NonFinite",
            "collector": "layer_numerics",
            "step": 4,
            "layer": "0",
            "kind": "nan",
            "rank": 0,
        }
        assert sweeps["nan"].receipt("nan")["verdict"] == "captured"

    def test_infinities_that_a_mask_put_there_fail_nothing(self, sweeps: Sweeps) -> None:
        metrics = result(sweeps, "mask")["metrics"]
        assert (metrics["layer_numerics_first_nonfinite_layer"], metrics["layer_numerics_first_nonfinite_step"]) == (
            "1",
            1,
        )
        assert metrics["layer_numerics_first_nonfinite_by_design"] == 1

    def test_an_exit_status_fails_it_with_the_last_lines_of_stderr(self, sweeps: Sweeps) -> None:
        found = result(sweeps, "exits")
        (detail, *_) = found["failure_details"]
        assert (detail["type"], detail["exit_code"]) == ("ScriptExit", 3)
        assert "the last word" in detail["stderr_tail"]
        assert (found["executed_iterations"], found["configured_iterations"]) == (2, 6)
        assert found["main_work_started"] is True
        assert sweeps["exits"].trial("exits")["exit_status"] == "workload_failed"

    def test_a_timeout_fails_it_with_the_seconds_and_leaves_no_process(self, sweeps: Sweeps) -> None:
        (detail,) = result(sweeps, "timeout")["failure_details"]
        assert (detail["type"], detail["timeout_s"]) == ("ScriptTimeout", 3)
        assert "3 seconds" in detail["error"]
        assert 3 <= result(sweeps, "timeout")["elapsed_sec"] < 60
        assert is_gone(int((directory(sweeps["timeout"]) / "slow").read_text()))

    def test_a_program_that_is_not_there_is_an_error_of_the_recipe(self, sweeps: Sweeps) -> None:
        (detail,) = result(sweeps, "missing")["failure_details"]
        assert detail["error"].startswith("recipe.workload_config.argv: ./no_such_program cannot be started")

    def test_a_pass_without_evidence_is_an_error(self, sweeps: Sweeps) -> None:
        (detail,) = result(sweeps, "no_model")["failure_details"]
        assert detail["type"] == "EvidenceMissing"
        assert "nothing to see" in log(sweeps, "no_model", "stdout")

    def test_a_cell_without_collectors_runs_without_them(self, sweeps: Sweeps) -> None:
        found = result(sweeps, "off")
        assert (found["passed"], found["step_times_ms"], found["executed_iterations"]) == (True, [], None)
        assert sweeps["off"].receipt("off")["verdict"] == "off"
        assert not sweeps["off"].artifacts("off").exists() or not list(sweeps["off"].artifacts("off").iterdir())


class TestSteps:
    def test_the_times_of_the_steps_are_the_collectors(self, sweeps: Sweeps) -> None:
        found = result(sweeps, "slow")
        assert len(found["step_times_ms"]) == 5  # of the last of six nothing tells the end
        assert all(time_ms > 200 for time_ms in found["step_times_ms"])
        assert (found["executed_iterations"], found["total_iterations"], found["configured_iterations"]) == (6, 6, 6)
        assert found["main_work_started"] is True
        summary = json.loads((sweeps["slow"].artifacts("slow") / "summary_rank0.json").read_text())
        assert summary["step_times_ms"] == found["step_times_ms"]
        assert summary["steps_per_time"] == 1

    def test_the_host_compares_cells_by_them(self, sweeps: Sweeps) -> None:
        assert sweeps["baseline"].cell("baseline")["step_time_source"] == "per_step"
        assert sweeps["slow"].cell("slow")["step_time_source"] == "per_step"
        assert sweeps["slow"].cell("slow")["mean_step_time_ms"] > 200
        assert sweeps["slow"].cell("slow")["confound"].startswith("speed (+")


class TestCommand:
    def test_output_lies_beside_the_record_and_stdin_is_empty(self, sweeps: Sweeps) -> None:
        assert log(sweeps, "baseline", "stdout").splitlines()[-1] == "step 6"
        assert "nanlog: attached layer hooks to 2 module(s)" in log(sweeps, "baseline", "stderr")
        seen = json.loads((directory(sweeps["baseline"]) / "seen_alone.json").read_text())
        assert seen["stdin"] == ""
        assert seen["cwd"] == str(directory(sweeps["baseline"]))

    def test_ranks_run_where_and_with_what_the_recipe_says(self, sweeps: Sweeps) -> None:
        for rank in (0, 1):
            seen = json.loads((directory(sweeps["ranks"]) / "work" / f"seen_{rank}.json").read_text())
            assert seen["cwd"] == str(directory(sweeps["ranks"]) / "work")
            assert (seen["WORLD_SIZE"], seen["argv"]) == ("2", ["train.py", "--steps", "3"])
            # extra_env is what the cell varies: it has precedence.
            assert (seen["GREETING"], seen["VARIED"], seen["DROPPED"]) == ("hello", "yes", "x")
        receipt = sweeps["ranks"].receipt("ranks")
        assert (receipt["verdict"], receipt["route"]) == ("captured", "front-end")
        assert result(sweeps, "ranks")["metrics"]["layer_numerics_ranks"] == 2

    def test_daemons_are_ended_and_counted(self, sweeps: Sweeps) -> None:
        assert result(sweeps, "daemon")["metrics"]["script_left_over"] == 2
        pids = [int(pid) for pid in (directory(sweeps["daemon"]) / "daemons").read_text().split()]
        assert [is_gone(pid) for pid in pids] == [True, True]

    def test_no_file_of_ours_is_taken_for_a_trial(self, sweeps: Sweeps) -> None:
        for name in ("baseline", "ranks"):
            assert sweeps[name].cell(name)["trials"] == 1
            assert [path.name for path in sweeps[name].cell_dir(name).rglob("trial_*.json")] == ["trial_d0_m0_t0.json"]


class TestInterruption:
    """A sweep that is ended in the middle of a trial takes the script with it."""

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
    def test_no_process_outlives_the_sweep(self, tmp_path: Path, number: signal.Signals, code: int) -> None:
        (tmp_path / "daemon.py").write_text(DAEMON + "import time; time.sleep(600)\n")
        recipe = write_recipe(
            tmp_path / "recipe.yaml", workload="script", steps=1, cells=[script("baseline", ["python", "daemon.py"])]
        )
        env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        words = ["aorta", "sweep", "run", "--recipe", str(recipe), "--output", "out"]
        daemons, output = tmp_path / "daemons", tmp_path / "output"
        with output.open("wb") as out:
            sweep = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=out, stderr=out, preexec_fn=interruptible)
        for _ in range(1200):
            if sweep.poll() is not None or (daemons.exists() and daemons.read_text().count(" ")):
                break
            time.sleep(0.05)
        sweep.send_signal(number)
        try:
            assert sweep.wait(60) == code, output.read_text()
        finally:
            sweep.kill()
            sweep.wait()
        pids = [int(pid) for pid in daemons.read_text().split()]
        assert [is_gone(pid) for pid in pids] == [True, True]


def test_a_recipe_that_cannot_be_run_is_refused_before_anything_is(tmp_path: Path) -> None:
    cells = [script("baseline", ["python", "train.py"]), script("wrong", ["python", "train.py"], config={"nprocs": 2})]
    recipe = write_recipe(tmp_path / "recipe.yaml", workload="script", steps=1, cells=cells)
    sweep = sweep_workload(tmp_path, recipe)
    assert sweep.ran.code != 0
    assert (
        "recipe.cells[wrong].workload_config: unknown key nprocs; did you mean nproc?" in sweep.ran.err + sweep.ran.out
    )
    assert not (tmp_path / "out").exists()


def directory(sweep: Sweep) -> Path:
    """Where the sweep was started."""
    return Path(os.path.abspath(sweep.run_dir)).parents[3]
