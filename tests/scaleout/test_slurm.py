"""A sweep as an array of Slurm jobs, by submitit's own code, on a cluster that is made up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.errors import CollectorsError
from aorta_collectors.scaleout.engine import Engine
from aorta_collectors.scaleout.ledger import Entry
from tests.host.support import cell, workload_recipe
from tests.scaleout import fake_slurm
from tests.scaleout.support import OUT, interrupt, matrix, submit, submit_and
from tests.support import Ran

pytestmark = pytest.mark.sweep

pytest.importorskip("submitit", reason="submitit, of the extra `submit`, is not installed")

WORDS = ["r.yaml", "--executor", "slurm", "--array-parallelism", "2", "--param", "timeout_min=30"]
WORDS += ["--param", "slurm_partition=debug", "--param", "mem_gb=4"]


@dataclass(frozen=True)
class Thrice:
    """A call that is interrupted, one that loses a node, and one that completes the sweep."""

    cwd: Path
    state: Path
    interrupted: Ran
    second: Ran
    rows: dict[str, dict[str, Any]]
    third: Ran


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> Thrice:
    cwd = tmp_path_factory.mktemp("slurm")
    env = fake_slurm.install(cwd)
    state = Path(env["FAKE_SLURM"])
    cells = [cell("baseline"), cell("clipped", "tf32_off"), cell("bare", "no_collectors")]
    confound = {"baseline_cell": "baseline"}
    workload_recipe(cwd / "r.yaml", "inference", steps=2, cells=cells, collect=["layer_numerics"], confound=confound)
    (state / "hold").touch()
    (state / "fail").write_text(f"1 {cwd / OUT}/jobs/clipped/1/results/T-1")
    (state / "requeue").write_text(f"2 {cwd / OUT}/jobs/bare/1/results/T-1")
    interrupted = submit_and(interrupt, lambda err: "bare: job 1000_2 submitted" in err, cwd, WORDS, None, env)
    go = (state / "hold").unlink
    second = submit_and(lambda _: go(), lambda err: "bare: job 1000_2 of an earlier" in err, cwd, WORDS, None, env)
    assert "cells done" in second.out, second.err
    rows = matrix(cwd)
    return Thrice(cwd, state, interrupted, second, rows, submit(cwd, WORDS, None, env))


def test_the_cells_are_one_array_with_the_parameters_and_the_parallelism_asked_for(thrice: Thrice) -> None:
    script = (thrice.state / "1000.sh").read_text()
    for line in ("array=0-2%2", "partition=debug", "mem=4GB", "time=30", "job-name=aorta-r"):
        assert f"#SBATCH --{line}\n" in script
    running: set[str] = set()
    most = 0
    for task, state in (line.split() for line in (thrice.state / "events").read_text().splitlines()):
        running = running | {task} if state == "RUNNING" else running - {task}
        most = max(most, len(running))
    assert most == 2


def test_an_interrupt_leaves_the_jobs_on_the_cluster(thrice: Thrice) -> None:
    assert thrice.interrupted.code == 1
    assert (
        "Still on Slurm: baseline (1000_0), clipped (1000_1), bare (1000_2); scancel ends them"
        in thrice.interrupted.err
    )
    assert "CANCELLED" not in (thrice.state / "events").read_text()


def test_the_next_call_waits_for_them_and_names_the_cell_of_the_node_that_failed(thrice: Thrice) -> None:
    assert thrice.second.code == 1, thrice.second.out + thrice.second.err
    assert thrice.second.err.count("of an earlier call still runs") == 3
    assert "submitted; its log" not in thrice.second.err
    assert {name: row["state"] for name, row in thrice.rows.items()} == {
        "baseline": "ran",
        "clipped": "lost",
        "bare": "ran",
    }
    reason = r"clipped: lost: job 1000_1 ended without a result: Slurm says NODE_FAIL; its log: (\S+)"
    found = re.search(reason, thrice.second.out)
    assert found is not None
    assert Path(found.group(1)).is_file()


def test_the_third_call_submits_that_cell_alone(thrice: Thrice) -> None:
    assert thrice.third.code == 0, thrice.third.out + thrice.third.err
    assert re.findall(r"^(\S+): job (\d+) submitted", thrice.third.err, re.M) == [("clipped", "1001")]
    assert "array" not in (thrice.state / "1001.sh").read_text()
    rows = matrix(thrice.cwd)
    assert [row["evidence"][0]["verdict"] for row in rows.values()] == ["captured", "captured", "off"]
    assert Path(rows["clipped"]["run_dir"]).is_relative_to(thrice.cwd / OUT / "jobs/clipped/2/results/T-1/inference")


def test_a_job_that_the_cluster_starts_again_is_judged_by_its_second_run(thrice: Thrice) -> None:
    events = (thrice.state / "events").read_text()
    assert events.count("1000_2 RUNNING") == 2
    assert thrice.rows["bare"]["state"] == "ran"
    assert len(thrice.rows["bare"]["evidence"]) == 1
    assert (thrice.cwd / OUT / "jobs/bare/1/results.1").is_dir()


def test_a_job_that_neither_accounting_nor_queue_knows_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_slurm.install(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "slurm-state" / "2000_0.task").write_text("PENDING")
    (tmp_path / "slurm-bin" / "sacct").write_text("#!/bin/sh\nexit 1\n")
    engine = Engine("slurm", {"timeout_min": 5}, None, "aorta-r")
    entries = {job: Entry(1, "slurm", job, str(tmp_path), "login1") for job in ("2000_0", "2000_1")}
    engine.queue_every_s = 0
    assert engine.ended(entries) == set()
    assert engine.ended(entries) == {"2000_1"}
    assert engine.state(entries["2000_1"]) == "no longer in Slurm's queue"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CollectorsError, match=r"squeue is not on PATH to ask for them: 2000_0 \(2000_0\), 2000_1"):
        engine.ended(entries)
