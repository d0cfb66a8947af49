"""Processes that are killed, wherever they are: no evidence is vouched for that is not whole, and the rerun passes."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.sweeps import (
    EVERY_STEP,
    POINTS,
    PROGRAM,
    held,
    kill_session,
    let_go,
    moments,
    session,
    started,
    until,
    verified,
)
from tests.host.support import Sweep, cell, mitigations, once, probe_recipe, read_json, sweep_command, workload_recipe
from tests.support import records, run

pytestmark = pytest.mark.sweep

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
AORTA = ["aorta", "sweep", "run", "--recipe", "r.yaml", "--output", "out"]


class TestHost:
    """aorta itself is killed."""

    def test_wherever_it_is_the_cells_lack_evidence_until_a_resumed_sweep_has_run_them(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(PROGRAM)
        bundles = {"slow": {"CELL": "slow", "HELD": "1"}, "last": {"CELL": "last"}}
        mitigations(tmp_path / "m.json", bundles)
        probe_recipe(tmp_path / "r.yaml", ["none", *bundles], collect=EVERY_STEP)
        sweep = [*AORTA, "--mitigations-file", "m.json", "--", "python", "train.py"]
        run_dir = tmp_path / "out" / "T-1"
        (tmp_path / "mine.txt").write_text("mine")

        draw, soon = random.Random(5), moments(5, 0.2)
        places = [*draw.sample(POINTS, 2), "verification"]
        for place, number in zip(places, (signal.SIGTERM, signal.SIGINT, signal.SIGKILL), strict=True):
            (tmp_path / "hold_at").write_text("exit" if place == "verification" else place)
            with started(sweep, tmp_path) as host:
                (pid,) = until(lambda: held(tmp_path), f"the program does not come to its {place}", host)
                assert session(pid) == [pid]  # nothing runs beside it that a stock host would not have
                if place == "verification":
                    let_go(tmp_path, pid)
                    until(lambda pid=pid: not session(pid), "the program does not end")  # type: ignore[misc]
                time.sleep(next(soon))
                host.send_signal(number)
                assert host.wait(60) != 0
            assert "Traceback" not in (tmp_path / "command.log").read_text()
            # SIGINT has the host end the program; otherwise it is left behind, as without the plugin.
            if place != "verification":
                assert (kill_session(pid) == []) == (number is signal.SIGINT)
                let_go(tmp_path, pid)
            found = verified(run_dir, tmp_path)
            assert found.code == 1
            assert found.verdicts["none-none"] == "captured"
            assert found.verdicts["last-none"] == "missing"
            assert "has not come to the end of this cell" in found.reason("last-none")
            if place != "verification":
                assert found.verdicts["slow-none"] == "missing"

        # One more is left behind in the middle of a step, and goes on once the next one has taken its place.
        (tmp_path / "hold_at").write_text("step")
        receipt = run_dir / "slow-none" / "_subprocess" / "receipt_d0_m0_t0_layer_numerics.json"
        receipt.unlink(missing_ok=True)
        with started(sweep, tmp_path) as host:
            (orphan,) = until(lambda: held(tmp_path), "the program does not come to its step", host)
            host.kill()
        (tmp_path / "hold_at").unlink()
        try:
            resumed = run(sweep, tmp_path).ok()
            assert "3 cell(s) passed" in resumed.out
            assert read_json(receipt)["verdict"] == "captured"
        finally:
            let_go(tmp_path, orphan)
        until(lambda: not session(orphan), "the orphan does not end")
        assert verified(run_dir, tmp_path).verdicts == dict.fromkeys(
            ("none-none", "slow-none", "last-none"), "captured"
        )
        assert (tmp_path / "runs_").read_text() == "x"  # nothing was lost of what was there
        assert (tmp_path / "mine.txt").read_text() == "mine"

    def test_the_receipt_of_an_earlier_run_does_not_vouch_for_a_trial_that_was_cut_off(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("import os\nos.environ['HELD'] = '1'\n" + PROGRAM)
        probe_recipe(tmp_path / "r.yaml", ["none"], trials=2, collect=EVERY_STEP)
        sweep = [*AORTA, "--", "python", "train.py"]
        first = Sweep(run(sweep, tmp_path).ok(), tmp_path / "out" / "T-1", "probe")
        (first.cell_dir("none") / "receipt_d0_m0_t0_layer_numerics.json").unlink()  # so the cell has to run again

        (tmp_path / "hold_at").write_text("step")
        with started(sweep, tmp_path) as host:
            (before,) = until(lambda: held(tmp_path), "the first trial does not come to its step", host)
            let_go(tmp_path, before)
            (pid,) = until(lambda: set(held(tmp_path)) - {before}, "the second trial does not come to its step", host)
            host.kill()
        kill_session(pid)
        (tmp_path / "hold_at").unlink()
        verdicts = {finding["trial"]: finding["verdict"] for finding in verified(first.run_dir, tmp_path).findings}
        assert verdicts["_subprocess_d0_m0_t0"] == "captured"
        assert verdicts["_subprocess_d0_m0_t1"] != "captured"

    def test_in_a_workload_of_its_own_the_cells_lack_evidence(self, tmp_path: Path) -> None:
        cells = [cell("baseline"), cell("long", steps=1_000_000), cell("last")]
        workload_recipe(tmp_path / "r.yaml", "inference", cells=cells, collect=EVERY_STEP)
        with started(AORTA, tmp_path) as host:
            records_of_the_cell = "out/*/*/*/cells/long/**/layers_rank0.jsonl"
            until(lambda: list(tmp_path.glob(records_of_the_cell)), "the cell does not begin", host)
            time.sleep(next(moments(9, 0.5)))
            host.kill()
            assert host.wait(60) == -signal.SIGKILL
        (run_dir,) = (tmp_path / "out").glob("*/*/*")
        found = verified(run_dir, tmp_path)
        assert found.code == 1
        assert found.verdicts == {"baseline": "captured", "long": "missing", "last": "missing"}


#: By cell: where the program kills itself, and what becomes of its evidence.
AT_A_POINT = {
    "start": ("start 9", "missing", "killed"),
    "model": ("model 15", "missing", "killed"),
    "step": ("step 2", "incomplete", "KeyboardInterrupt"),
    "abort": ("step 6", "incomplete", "died in step 3"),
    "exit": ("exit 9", "incomplete", "5 step(s), 1 rank(s), but then the command was ended by SIGKILL"),
}
_draw = random.Random(1)
#: By cell: when a signal comes from outside.
AT_A_MOMENT = {f"moment{index}": f"{_draw.uniform(0.2, 4):.2f} {int(SIGNALS[index % 3])}" for index in range(3)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def build(directory: Path) -> Sweep:
        (directory / "train.py").write_text(PROGRAM)
        points = {name: {"KILL_AT": at} for name, (at, _, _) in AT_A_POINT.items()}
        bundles = points | {name: {"KILL_AFTER": after} for name, after in AT_A_MOMENT.items()}
        file = mitigations(directory / "m.json", bundles)
        recipe = probe_recipe(directory / "r.yaml", ["none", *bundles], collect=EVERY_STEP)
        return sweep_command(directory, recipe, ["python", "train.py"], "--mitigations-file", str(file))

    return once(tmp_path_factory, "killed", build)


class TestProgram:
    """The program is killed."""

    @pytest.mark.parametrize("name", AT_A_POINT)
    def test_at_a_point_of_its_life(self, killed: Sweep, name: str) -> None:
        _, verdict, reason = AT_A_POINT[name]
        receipt = killed.receipt(name)
        assert receipt["verdict"] == verdict
        assert reason in receipt["reason"]
        assert f"the command exited with {killed.command(name)['exit_code']}" in receipt["reason"]
        assert killed.command(name)["verdict"] == "fail"

    @pytest.mark.parametrize("name", AT_A_MOMENT)
    def test_at_any_moment(self, killed: Sweep, name: str) -> None:
        """Evidence that is whole is no evidence that the command had run its course."""
        receipt, command = killed.receipt(name), killed.command(name)
        steps = len(killed.stdout(name).splitlines())
        if command["exit_code"] == 0:
            assert (receipt["verdict"], steps) == ("captured", 5)  # it came too late
            return
        assert command["verdict"] == "fail"
        assert receipt["verdict"] in ("missing", "unattached", "incomplete"), receipt["reason"]

    def test_the_sweep_goes_on_and_names_each_cell_that_lacks_evidence(self, killed: Sweep) -> None:
        assert killed.ran.code == 1
        assert "Traceback" not in killed.ran.err
        assert killed.receipt("none")["verdict"] == "captured"
        found = verified(killed.run_dir, killed.run_dir)
        assert found.code == 1
        for name in ("none", *AT_A_POINT, *AT_A_MOMENT):
            assert found.verdicts[f"{name}-none"] == killed.receipt(name)["verdict"]
            assert (f"{name}-none" in killed.ran.err) == (killed.receipt(name)["verdict"] != "captured")

    def test_what_was_on_disk_before_can_be_read(self, killed: Sweep) -> None:
        for name in ("step", "abort"):
            steps = {record["step"] for record in records(killed.artifacts(name) / "layers_rank0.jsonl")}
            assert steps >= {1, 2}


#: torchrun ends rank 0 once rank 1 has died, which may be before it has come to its model.
AFTER_RANK_0 = """
while os.environ["RANK"] == "1" and not os.path.exists(os.environ["NANLOG_DIR"] + "/summary_rank0.json"):
    time.sleep(0.01)
"""


def test_a_rank_that_is_killed_makes_the_trial_incomplete(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    bundles = {
        "early": {"KILL_AT": "model 9", "KILL_RANK": "1", "AT_START": AFTER_RANK_0},
        "late": {"KILL_AT": "step 15", "KILL_RANK": "0"},
    }
    file = mitigations(tmp_path / "m.json", bundles)
    recipe = probe_recipe(tmp_path / "r.yaml", list(bundles), collect=EVERY_STEP)
    command = ["torchrun", "--standalone", "--nproc_per_node=2", "train.py"]
    sweep = sweep_command(tmp_path, recipe, command, "--mitigations-file", str(file))
    assert sweep.ran.code == 1
    for name in bundles:
        assert sweep.receipt(name)["verdict"] == "incomplete"
        assert sweep.command(name)["verdict"] == "fail"
    assert "rank(s) 1 of 2" in sweep.receipt("early")["reason"]
    assert "rank 0 ended in step 3 with signal SIGTERM" in sweep.receipt("late")["reason"]
