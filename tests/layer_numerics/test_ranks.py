"""Jobs of several ranks, as launchers start them: what each rank leaves, and what is made of all of it together."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Expected, Verdict, Verification
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.collector import LayerNumerics
from tests.host.support import Sweep, probe_recipe, sweep_command
from tests.support import PYTHON, Ran, records, run

#: One rank. JOB says what the ranks do. No process group: what is tested is what a launcher says, and how ranks end.
RANK = """
import os, signal, sys, time
import torch
from torch import nn

rank, job = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0))), os.environ["JOB"]
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def train(model, steps=3, bad=0):
    width = next(model.parameters()).shape[1]
    for step in range(1, steps + 1):
        model(torch.full((2, width), float("nan") if step == bad else 1.0)).sum().backward()
        model.zero_grad()


def reached(name):
    open(name, "w").close()


def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.05)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def main():
    if job == "plain":
        train(mlp(), steps=3 + rank % 2)
    elif job == "restart":
        # The first attempt ends over a NaN of rank 1; rank 0 is in the middle of something then.
        if attempt == 0 and rank == 0:
            train(mlp(), steps=2)
            reached("rank 0 trained")
            time.sleep(600)
        if attempt == 0:
            train(mlp(), bad=2)
            wait_for("rank 0 trained")
            raise RuntimeError("boom")
        train(mlp(), steps=4)
    elif job == "killed":
        train(mlp(), steps=2 + rank)
        reached(f"rank {rank} trained")
        if rank == 1:
            wait_for("rank 0 trained")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    elif job == "stopped":
        # One rank stops over a bad value, and the launcher stops the other, which has seen none.
        train(mlp(), bad=3 * rank)
        reached(f"rank {rank} trained")
        if rank == 1:
            wait_for("rank 0 trained")
            raise RuntimeError("loss is nan")
        time.sleep(600)
    elif job == "stages":
        if rank == 0:
            # The third record of step 3 is the first bad one, in the forward.
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
            train(model, steps=2)
            model[2].weight.data.fill_(float("nan"))
            model(torch.ones(2, 4))
        elif rank == 1:
            # The forward is clean, and the second record, a gradient, bad.
            model = nn.Sequential(nn.Linear(4, 2))
            train(model, steps=2)
            out = model(torch.ones(2, 4, requires_grad=True))
            (out.sum() * float("nan")).backward()
        elif rank == 2:
            embedding = nn.EmbeddingBag(10, 3)
            for _ in range(3):
                embedding(torch.zeros(2, 4, dtype=torch.long)).sum().backward()
        else:
            # Has a model, and never calls it.
            spare = mlp()
            loaded = torch.utils.data.DataLoader([1.0, 2.0], num_workers=1, multiprocessing_context="spawn")
            assert len(list(loaded)) == 2


if __name__ == "__main__":
    main()
"""

SPAWNED = """
import os
import torch, torch.multiprocessing
from torch import nn


def work(index, ranked):
    if ranked:
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(index), "2"
    if ranked and index == 1:
        return
    model = nn.Linear(4, 1)
    for step in range(index + 1):
        model(torch.ones(1, 4)).sum().backward()


if __name__ == "__main__":
    for mode in ("alike", "ranked"):
        os.environ["NANLOG_DIR"] = mode
        torch.multiprocessing.spawn(work, args=(mode == "ranked",), nprocs=2)
"""

OPTIONS = {"NANLOG_SAMPLE_EVERY": "1"}
RUN_ID = "this run"


class Job:
    """A finished job: its directory, the artifacts in `out`, and what verification makes of them."""

    def __init__(self, directory: Path, launcher: list[str], job: str) -> None:
        (directory / "rank.py").write_text(RANK)
        env = {**OPTIONS, "NANLOG_DIR": "out", "NANLOG_RUN_ID": RUN_ID, "JOB": job}
        self.directory = directory
        self.ran: Ran = run([*launcher, "-m", "aorta_collectors.layer_numerics", "rank.py"], directory, env, 170)
        self.found = verify(directory)

    @property
    def processes(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = list(self.found.details["processes"])
        return sorted(listed, key=lambda process: (process["restart"], process["rank"]))

    @property
    def states(self) -> list[tuple[int, int, str, int]]:
        return [tuple(process[key] for key in ("restart", "rank", "state", "steps_seen")) for process in self.processes]

    @property
    def metrics(self) -> dict[str, Any]:
        with Anchor(self.directory).open(self.directory / "out") as artifacts:
            return {name[15:]: value for name, value in LayerNumerics().summarize(artifacts).items()}

    def merged(self, *options: str) -> list[dict[str, Any]]:
        ran = run(["aorta-collectors", "merge", "out", *options], self.directory).ok()
        return [json.loads(line) for line in ran.out.splitlines()]


def verify(directory: Path, name: str = "out", run_ids: Iterable[str] = (RUN_ID,)) -> Verification:
    collector = LayerNumerics()
    with Anchor(directory).open(directory / name) as artifacts:
        return collector.verify(artifacts, Expected(collector.recall(OPTIONS), frozenset(run_ids)))


def torchrun(ranks: int, *options: str) -> list[str]:
    return ["torchrun", "--standalone", f"--nproc-per-node={ranks}", *options]


def edit_file(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def check_files(artifacts: Path, processes: list[dict[str, Any]]) -> None:
    """Each process has files of its own, and they are whole."""
    assert len({process["files"] for process in processes}) == len({process["pid"] for process in processes})
    for process in processes:
        content = json.loads((artifacts / f"summary_{process['files']}.json").read_text())
        lines = records(artifacts / f"layers_{process['files']}.jsonl")
        assert {line["pid"] for line in lines} <= {process["pid"]}
        assert (content["pid"], content["rank"]) == (process["pid"], process["rank"])


class TestLaunchers:
    def test_eight_ranks_of_torchrun_leave_their_files_and_are_listed(self, tmp_path: Path) -> None:
        job = Job(tmp_path, torchrun(8), "plain")
        job.ran.ok()
        assert job.found.verdict is Verdict.CAPTURED, job.found.reason
        assert job.found.reason == "2 module(s) over 4 step(s), 8 rank(s)"
        assert job.states == [(0, rank, "complete", 3 + rank % 2) for rank in range(8)]
        check_files(tmp_path / "out", job.processes)
        assert job.metrics["ranks"] == 8
        places = [(record["step"], record["seq"], record["rank"]) for record in job.merged()]
        assert places == sorted(places)
        assert len(places) == job.metrics["records"]

    def test_open_mpi_says_the_rank_in_words_of_its_own(self, tmp_path: Path) -> None:
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
        if shutil.which("mpirun") is None or "OMPI_COMM_WORLD" not in run([*mpirun, "env"], tmp_path).out:
            pytest.skip("mpirun is not installed, is not Open MPI's, or does not run here")
        job = Job(tmp_path, [*mpirun, PYTHON], "plain")
        job.ran.ok()
        assert job.found.verdict is Verdict.CAPTURED, job.found.reason
        assert job.states == [(0, 0, "complete", 3), (0, 1, "complete", 4)]


@pytest.fixture(scope="module")
def spawned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("spawned")
    (directory / "spawned.py").write_text(SPAWNED)
    env = {**OPTIONS, "NANLOG_DIR": "out", "NANLOG_RUN_ID": RUN_ID}
    run([PYTHON, "-m", "aorta_collectors.layer_numerics", "spawned.py"], directory, env).ok()
    return directory


class TestSpawned:
    def test_processes_without_a_rank_are_all_rank_0_and_share_no_file(self, spawned: Path) -> None:
        found = verify(spawned, "alike")
        assert found.verdict is Verdict.CAPTURED, found.reason
        processes = found.details["processes"]
        assert sorted(process["steps_seen"] for process in processes) == [1, 2]
        plain, other = sorted(processes, key=lambda process: len(process["files"]))
        assert (plain["rank"], plain["files"]) == (0, "rank0")
        assert (other["rank"], other["files"]) == (0, f"rank0_p{other['pid']}")
        check_files(spawned / "alike", processes)

    def test_a_rank_that_calls_no_model_says_so_and_is_no_hole(self, spawned: Path, tmp_path: Path) -> None:
        found = verify(spawned, "ranked")
        assert found.verdict is Verdict.CAPTURED, found.reason
        assert "rank(s) 1 built or called no model" in found.reason
        states = [(process["files"], process["state"]) for process in found.details["processes"]]
        assert states == [("rank0", "complete"), ("rank1", "no model")]
        shutil.copytree(spawned / "ranked", tmp_path / "out")
        edit_file(tmp_path / "out" / "summary_rank1.json", ended_by="RuntimeError: boom")
        assert verify(tmp_path).reason == "rank 1 ended with RuntimeError: boom; it had called no model"
        (tmp_path / "out" / "summary_rank1.json").unlink()
        assert verify(tmp_path).reason == "no evidence from rank(s) 1 of 2"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("restarts")
    (directory / "rank.py").write_text(RANK)
    recipe = probe_recipe(directory / "r.yaml", collect={"layer_numerics": OPTIONS})
    command = ["env", "JOB=restart", *torchrun(2, "--max-restarts=1"), "rank.py"]
    return sweep_command(directory, recipe, command)


@pytest.fixture
def artifacts(sweep: Sweep, tmp_path: Path) -> Path:
    """A copy to spoil. Files of the last attempt are called rank<N>_p0."""
    copy = Path(shutil.copytree(sweep.artifacts(), tmp_path / "out"))
    for path in copy.glob("*_p*"):
        path.rename(copy / f"{path.name.partition('_p')[0]}_p0{path.suffix}")
    return copy


@pytest.mark.sweep
class TestRestarts:
    def test_an_attempt_that_was_started_anew_is_superseded(self, sweep: Sweep) -> None:
        sweep.ran.ok()
        receipt = sweep.receipt()
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert "2 process(es) superseded by restart 1" in receipt["reason"]
        listed = {(process["restart"], process["rank"]): process for process in receipt["details"]["processes"]}
        assert {place: process["state"] for place, process in listed.items()} == {
            (0, 0): "superseded",
            (0, 1): "superseded",
            (1, 0): "complete",
            (1, 1): "complete",
        }
        assert listed[0, 1]["ended_by"] == "RuntimeError: boom"
        assert "SIGTERM" in listed[0, 0]["ended_by"]
        check_files(sweep.artifacts(), list(listed.values()))

    def test_what_it_saw_is_evidence_all_the_same(self, sweep: Sweep, artifacts: Path) -> None:
        metrics = sweep.receipt()["metrics"]
        assert metrics["layer_numerics_first_bad_step"] == 2
        assert metrics["layer_numerics_first_bad_rank"] == 1
        assert "layer_numerics_first_bad_attempt" not in metrics
        ran = run(["aorta-collectors", "merge", str(sweep.artifacts()), "--first-bad"], artifacts).ok()
        found = json.loads(ran.out)
        assert [found[key] for key in ("restart", "step", "rank", "bad")] == [0, 2, 1, True]
        edit_file(artifacts / "summary_rank1.json", first_bad=None, first_nonfinite=None)
        bad = {"step": 1, "layer": "0", "direction": "fwd", "kind": "huge", "matmul_calls_so_far": 1}
        edit_file(artifacts / "summary_rank0_p0.json", first_bad=bad)
        with Anchor(artifacts).open(artifacts) as opened:
            assert LayerNumerics().summarize(opened)["layer_numerics_first_bad_attempt"] == 1

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"status": "running", "ended_by": None}, "rank 1 died in step 4; evidence ends there"),
            ({"ended_by": "E"}, "rank 1 ended in step 4 with E, before anything bad was seen"),
            (None, "no evidence from rank(s) 1 of 2"),
        ],
    )
    def test_the_last_attempt_has_to_be_complete(
        self, sweep: Sweep, artifacts: Path, changes: dict[str, Any] | None, reason: str
    ) -> None:
        if changes is None:
            for path in artifacts.glob("*rank1_p0*"):
                path.unlink()
        else:
            edit_file(artifacts / "summary_rank1_p0.json", **changes)
        found = verify(artifacts.parent, run_ids=sweep.receipt()["run_ids"])
        assert (found.verdict, found.reason) == (Verdict.INCOMPLETE, reason)

    def test_one_launcher_supersedes_nothing_of_another(self, sweep: Sweep, artifacts: Path) -> None:
        """Two commands of one script, one after the other."""
        for rank in (0, 1):
            edit_file(artifacts / f"summary_rank{rank}.json", launcher="host:another")
        found = verify(artifacts.parent, run_ids=sweep.receipt()["run_ids"])
        assert (found.verdict, "superseded" in str(found.details)) == (Verdict.CAPTURED, False)
        edit_file(artifacts / "summary_rank1.json", first_bad=None, origin=None)
        found = verify(artifacts.parent, run_ids=sweep.receipt()["run_ids"])
        assert found.verdict is Verdict.INCOMPLETE


class TestEnds:
    def test_a_rank_that_is_killed_is_named_though_its_launcher_stopped_the_others(self, tmp_path: Path) -> None:
        job = Job(tmp_path, torchrun(2), "killed")
        assert job.ran.code != 0
        assert (job.found.verdict, job.found.reason) == (
            Verdict.INCOMPLETE,
            "rank 1 died in step 3; evidence ends there",
        )
        assert job.states == [(0, 0, "died", 2), (0, 1, "died", 3)]
        assert "SIGTERM" in job.processes[0]["ended_by"]
        assert job.processes[1]["ended_by"] is None

    def test_ranks_that_end_with_the_one_that_saw_the_bad_value_are_no_hole(self, tmp_path: Path) -> None:
        job = Job(tmp_path, torchrun(2), "stopped")
        assert job.ran.code != 0
        assert job.found.verdict is Verdict.CAPTURED, job.found.reason
        assert [process["ended_by"] for process in job.processes][1] == "RuntimeError: loss is nan"
        assert (job.metrics["first_bad_step"], job.metrics["first_bad_rank"]) == (3, 1)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("stages"), torchrun(4), "stages")


class TestDifferentModels:
    def test_each_rank_is_held_to_its_own_model(self, stages: Job) -> None:
        stages.ran.ok()
        found = stages.found
        assert found.verdict is Verdict.CAPTURED, found.reason
        assert found.reason.startswith("3 module(s) over 3 step(s), 2 rank(s)")
        assert "rank(s) 3 built or called no model" in found.reason
        assert "nothing of the model of rank(s) 2 is watched" in found.reason
        assert [state[2] for state in stages.states] == ["complete", "complete", "nothing watched", "no model"]

    def test_workers_of_a_ranks_data_loader_leave_nothing(self, stages: Job) -> None:
        assert sorted(path.name for path in (stages.directory / "out").glob("summary_*")) == [
            f"summary_rank{rank}.json" for rank in range(4)
        ]

    def test_the_forward_of_one_stage_comes_before_the_backward_of_another(self, stages: Job) -> None:
        """Both went bad in step 3. By their places in the step alone, rank 1's gradient would be the earlier one."""
        of_rank = {
            process["rank"]: json.loads((stages.directory / "out" / f"summary_{process['files']}.json").read_text())
            for process in stages.processes
        }
        first, second = of_rank[0]["first_bad"], of_rank[1]["first_bad"]
        assert [first[key] for key in ("step", "direction", "seq")] == [3, "fwd", 2]
        assert [second[key] for key in ("step", "direction", "seq")] == [3, "bwd", 1]
        (found,) = stages.merged("--first-bad")
        assert (found["rank"], found["step"], found["layer_name"]) == (0, 3, first["layer"])
        assert (stages.metrics["first_bad_rank"], stages.metrics["first_bad_layer"]) == (0, first["layer"])

    def test_if_no_rank_calls_a_model_there_is_no_evidence(self, stages: Job, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        content = json.loads((stages.directory / "out" / "summary_rank3.json").read_text())
        assert content["world_size"] == 4
        for rank in range(4):
            path = tmp_path / "out" / f"summary_rank{rank}.json"
            path.write_text(json.dumps({**content, "rank": rank}))
        assert verify(tmp_path).verdict is Verdict.UNATTACHED
        assert os.listdir(tmp_path) == ["out"]
