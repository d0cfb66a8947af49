"""A sweep as jobs on this machine: a job is killed, and a second call completes what is missing."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import mitigations, probe_recipe, read_json
from tests.scaleout.support import OUT, alive, interrupt, ledger, matrix, submit, submit_and, until
from tests.support import PYTHON, Ran

pytestmark = pytest.mark.sweep

pytest.importorskip("submitit", reason="submitit, of the extra `submit`, is not installed")

#: In the cell FRAGILE it first kills the process of the job that it runs in, as the out-of-memory killer could.
PROGRAM = """
import os, pathlib, signal, time

def parent(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("PPid")).split()[1])

if os.environ.get("FRAGILE") and not pathlib.Path("died").exists():
    sweep = os.getppid()
    pathlib.Path("died").write_text(f"{os.getpid()} {sweep}")
    os.kill(parent(sweep), signal.SIGKILL)
    time.sleep(600)
import torch
model = torch.nn.Linear(4, 4)
for _ in range(3):
    model(torch.randn(2, 4)).sum().backward()
print("GPUs", os.environ.get("CUDA_VISIBLE_DEVICES"), [name for name in os.environ if name.startswith("SUBMITIT_")])
"""
#: Tells its process id, and waits for the file `go`.
WAITER = """
import os, pathlib, time
pathlib.Path(f"started-{os.environ.get('WHICH', '0')}").write_text(str(os.getpid()))
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


@dataclass(frozen=True)
class Twice:
    """A submission, and the same one again after a job was lost and the evidence of another cell was spoiled."""

    cwd: Path
    first: Ran
    again: Ran
    rows: dict[str, dict[str, Any]]
    words: list[str]


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Twice:
    cwd = tmp_path_factory.mktemp("local")
    (cwd / "train.py").write_text(PROGRAM)
    mitigations(cwd / "m.json", {"fragile": {"FRAGILE": "1"}})
    probe_recipe(cwd / "r.yaml", ["none", "fragile", "no_collectors"], collect=["layer_numerics"])
    words = ["r.yaml", "--executor", "local", "--array-parallelism", "2", "--mitigations-file", "m.json"]
    first = submit(cwd, words, [PYTHON, "train.py"], {"CUDA_VISIBLE_DEVICES": "5"})
    assert "cells done" in first.out, first.err
    rows = matrix(cwd)
    for summary in (cwd / OUT / "jobs/none-none/1").rglob("summary_rank0.json"):
        summary.unlink()
    return Twice(cwd, first, submit(cwd, words, [PYTHON, "train.py"]), rows, words)


def test_a_lost_job_is_missing_under_its_cells_name_and_the_others_are_done(twice: Twice) -> None:
    assert twice.first.code == 1, twice.first.err
    assert {cell: row["state"] for cell, row in twice.rows.items()} == {
        "none-none": "ran",
        "fragile-none": "lost",
        "no_collectors-none": "ran",
    }
    table = [line.split() for line in twice.first.out.splitlines() if " layer_numerics " in line]
    assert [(row[0], row[3]) for row in table] == [
        ("none-none", "captured"),
        ("fragile-none", "missing"),
        ("no_collectors-none", "off"),
    ]
    assert re.search(r"^fragile-none: lost: job \d+ ended without a result: .*its log: \S+$", twice.first.out, re.M)
    assert "2 of 3 cells done" in twice.first.out


def test_what_a_lost_job_ran_is_ended(twice: Twice) -> None:
    program, sweep = map(int, (twice.cwd / "died").read_text().split())
    until(lambda: not alive(program) and not alive(sweep))


def test_the_log_that_is_named_shows_how_the_sweep_went(twice: Twice) -> None:
    assert "starting 1 trial(s)" in Path(str(twice.rows["none-none"]["log"])).read_text()


def test_a_job_sees_the_gpus_of_the_caller_and_nothing_of_the_engine(twice: Twice) -> None:
    run_dir = Path(str(twice.rows["none-none"]["run_dir"]))
    assert (run_dir / "none-none/trial_0/stdout.log").read_text() == "GPUs 5 []\n"


def test_the_second_call_submits_only_what_lacks_evidence(twice: Twice) -> None:
    assert twice.again.code == 0, twice.again.out + twice.again.err
    assert re.findall(r"^(\S+): job \d+ submitted", twice.again.err, re.M) == ["none-none", "fragile-none"]
    assert re.findall(r"^(\S+): kept", twice.again.err, re.M) == ["no_collectors-none"]
    assert "none-none: submitted again, since it is lacking" in twice.again.err
    assert "3 of 3 cells done" in twice.again.out


def test_the_matrix_holds_every_cell_with_its_evidence(twice: Twice) -> None:
    rows = matrix(twice.cwd)
    assert [row["state"] for row in rows.values()] == ["ran"] * 3
    assert [row["attempt"] for row in rows.values()] == [2, 2, 1]
    assert all(row["evidence"][0]["satisfied"] for row in rows.values())
    assert [row["evidence"][0]["verdict"] for row in rows.values()] == ["captured", "captured", "off"]
    assert (Path(rows["fragile-none"]["run_dir"]) / "matrix.json").is_file()


def test_another_sweep_in_the_same_place_is_refused(twice: Twice) -> None:
    before = (twice.cwd / OUT / "submission.json").read_text()
    ran = submit(twice.cwd, twice.words, [PYTHON, "train.py", "--other"])
    assert ran.code == 1
    digests = re.search(r"digest is (\w{12}), that of this call is (\w{12}) \(changed: command\)", ran.err)
    assert digests is not None
    assert digests.group(1) == ledger(twice.cwd)["digest"][:12] != digests.group(2)
    assert "Give another --output" in ran.err
    assert (twice.cwd / OUT / "submission.json").read_text() == before


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A sweep of two cells that asks for no evidence and waits."""
    (tmp_path / "wait.py").write_text(WAITER)
    mitigations(tmp_path / "m.json", {"second": {"WHICH": "1"}})
    probe_recipe(tmp_path / "r.yaml", ["none", "second"])
    return tmp_path


WORDS = ["r.yaml", "--executor", "local", "--mitigations-file", "m.json"]


def test_an_interrupt_ends_local_jobs_and_the_next_call_starts_them_again(waiting: Path) -> None:
    started = waiting / "started-0"
    ran = submit_and(interrupt, lambda err: started.exists(), waiting, WORDS, [PYTHON, "wait.py"])
    assert ran.code == 1
    assert "The same command continues" in ran.err
    assert "Traceback" not in ran.err
    until(lambda: not alive(int(started.read_text())))
    assert not (waiting / "started-1").exists(), "one job at a time, unless told otherwise"
    (waiting / "go").touch()
    ran = submit(waiting, WORDS, [PYTHON, "wait.py"]).ok()
    assert "none-none: submitted again, since it is lost" in ran.err
    assert "2 of 2 cells done" in ran.out


def test_jobs_outlive_a_killed_call_and_are_taken_up_by_the_next_one(waiting: Path) -> None:
    probe_recipe(waiting / "r.yaml")
    started = waiting / "started-0"
    submit_and(subprocess.Popen.kill, lambda err: started.exists(), waiting, WORDS, [PYTHON, "wait.py"])
    job = ledger(waiting)["cells"]["none-none"]["job"]
    assert alive(int(job))
    others: list[Ran] = []

    def meanwhile(_: object) -> None:
        others.append(submit(waiting, WORDS, [PYTHON, "wait.py"]))
        (waiting / "go").touch()

    taken_up = f"none-none: job {job} of an earlier call still runs"
    ran = submit_and(meanwhile, lambda err: taken_up in err, waiting, WORDS, [PYTHON, "wait.py"]).ok()
    assert "another call is submitting to" in others[0].err
    assert "none-none: ran" in ran.err
    assert read_json(waiting / OUT / "submission.json")["cells"]["none-none"]["job"] == job
    assert matrix(waiting)["none-none"]["state"] == "ran"
