"""Trials that once passed without the evidence that was asked for, or lost some of it: each is held to what it did."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.host.support import (
    Sweep,
    aorta,
    cell,
    mitigations,
    once,
    probe_recipe,
    read_json,
    sweep_command,
    workload_recipe,
    write_recipe,
)
from tests.support import BIN, TRAIN, records, run, summary

pytestmark = pytest.mark.sweep

EVERY_STEP = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}

#: Calls its first model in the moment in which the other one does.
RACER = """
import sys, time
from pathlib import Path
import torch
from torch import nn

mine, other, value = sys.argv[1:]
model = nn.Linear(4, 4)
Path(mine).touch()
deadline = time.monotonic() + 60
while not Path(other).exists():
    assert time.monotonic() < deadline
for _ in range(2):
    model(torch.full((1, 4), float(value)))
"""

#: SHAPE says what the program does besides calling one layer.
PARENT = """
import atexit, os, subprocess, sys
import torch
import torch.distributed as dist
from torch import nn


def train(model, bad_step=0, steps=3, data=None):
    for step, x in zip(range(1, steps + 1), data or [torch.ones(2, 4)] * steps):
        if step == bad_step:
            x = x / 0
        model(x).sum().backward()


def replica(rank):
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
    train(nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4))), bad_step=2 * rank)
    dist.barrier()
    dist.destroy_process_group()
    # gloo's threads may still be ending, and torch 2.13 then aborts one exit in seven, with us or without.
    atexit._run_exitfuncs()
    os._exit(0)


class Samples(torch.utils.data.Dataset):
    # A transform that is a module, as in torchvision: it trains nothing.
    transform = nn.Sequential(nn.Flatten(0), nn.Identity())

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.transform(torch.full((2, 2), float(index)))


class Mixed(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.stem, self.encoder, self.spare = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4)
        self.call = call

    def forward(self, x):
        return self.call(self)(self.stem(x))


def fork(model, gradients):
    child = os.fork()
    if child == 0:
        with torch.set_grad_enabled(gradients):
            for _ in range(3):
                model(torch.ones(1, 4) / 0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def main(shape):
    layer, model = nn.Linear(4, 4), Mixed(lambda model: model.encoder)
    if shape in ("spawn", "subprocess", "fork"):
        layer(torch.ones(1, 4))
    if shape == "spawn":
        torch.multiprocessing.spawn(replica, nprocs=2)
    elif shape == "subprocess":
        subprocess.check_call([sys.executable, "train.py", "--lr", "2", "--steps", "9"])
    elif shape == "fork":
        fork(layer, gradients=True)
    elif shape == "loader":
        loader = torch.utils.data.DataLoader(Samples(), batch_size=2, num_workers=2, multiprocessing_context="fork")
        train(model, data=list(loader))
        fork(model, gradients=False)
    elif shape == "compiled":
        model.encoder = torch.compile(model.encoder, backend="aot_eager")
        train(model)
    elif shape == "functionalize":
        train(Mixed(lambda model: torch.func.functionalize(model.encoder)))
    print("done", shape)


if __name__ == "__main__":
    main(os.environ["SHAPE"])
"""

#: Cells whose children or layers are seen, and cells that cannot be vouched for.
CAPTURED = ["spawn", "subprocess", "loader"]
INCOMPLETE = ["fork", "compiled", "functionalize"]

#: Forget what the host has told them, and train `steps` steps, or none.
WORKLOADS = """
import datetime
from pathlib import Path
from aorta.workloads._base import Workload, WorkloadResult


class Forgetful(Workload):
    trains = True

    def __init__(self, config):
        super().__init__(config)
        if config.get("forget_at_once"):
            self.forget()

    def forget(self):
        for key in [key for key in self.config if key.startswith("_aorta_")]:
            del self.config[key]

    def setup(self):
        self.forget()

    def run(self):
        if self.trains and self.config.get("train", True):
            import torch

            model = torch.nn.Sequential(torch.nn.Linear(4, 1))
            for _ in range(3):
                model(torch.ones(2, 4)).sum().backward()
        return WorkloadResult(passed=True)


class Idle(Forgetful):
    trains = False


class OneRankFails(Workload):
    launch_mode = "distributed"

    def setup(self):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
        self.model = torch.nn.Linear(4, 1)

    def run(self):
        import torch
        import torch.distributed as dist

        self.model(torch.ones(2, 4)).sum().backward()
        if dist.get_rank() == 1:
            Path("raised").touch()
            raise RuntimeError("rank 1 has lost its device")
        dist.barrier()
        return WorkloadResult(passed=True)
"""


def _installed(directory: Path) -> dict[str, str]:
    """The environment in which a package with WORKLOADS is installed."""
    info = directory / "site" / "strange_workloads-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-workloads\nVersion: 1.0\n")
    names = {"forgetful": "Forgetful", "idle": "Idle", "one_rank_fails": "OneRankFails"}
    entries = "".join(f"{name} = strange_workloads:{kind}\n" for name, kind in names.items())
    (info / "entry_points.txt").write_text(f"[aorta.workloads]\n{entries}")
    (info.parent / "strange_workloads.py").write_text(WORKLOADS)
    return {"PYTHONPATH": str(info.parent)}


def _race(directory: Path) -> Sweep:
    (directory / "racer.py").write_text(RACER)
    (directory / "race.sh").write_text("python racer.py a b inf &\npython racer.py b a 1 &\nwait\n")
    recipe = probe_recipe(directory / "r.yaml", collect=EVERY_STEP)
    return sweep_command(directory, recipe, ["bash", "race.sh"])


def _shapes(directory: Path) -> Sweep:
    (directory / "parent.py").write_text(PARENT)
    (directory / "train.py").write_text(TRAIN)
    shapes = [*CAPTURED, *INCOMPLETE]
    file = mitigations(directory / "m.json", {shape: {"SHAPE": shape} for shape in shapes})
    recipe = probe_recipe(directory / "r.yaml", shapes, collect=EVERY_STEP)
    return sweep_command(directory, recipe, ["python", "parent.py"], "--mitigations-file", str(file))


def _forgetful(directory: Path) -> Sweep:
    env = _installed(directory)
    cells = [
        cell("trains"),
        cell("trains_later", workload_config={"forget_at_once": True}),
        cell("idle", workload_config={"train": False}),
        cell("idle_later", workload_config={"train": False, "forget_at_once": True}),
    ]
    recipe = write_recipe(directory / "r.yaml", workload="forgetful", steps=3, cells=cells, collect=EVERY_STEP)
    ran = aorta(["sweep", "run", "--recipe", str(recipe), "--output", "out"], directory, env)
    (matrix,) = (directory / "out").glob("*/*/*/matrix.json")
    return Sweep(ran, matrix.parent, "workload")


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return once(tmp_path_factory, "race", _race)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return once(tmp_path_factory, "shapes", _shapes)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return once(tmp_path_factory, "forgetful", _forgetful)


class TestTwoProgramsAtOnce:
    """Processes of one rank that begin in the same moment."""

    def test_both_leave_their_summary_and_records(self, race: Sweep) -> None:
        race.ran.ok()
        contents = [read_json(path) for path in sorted(race.artifacts().glob("summary_*.json"))]
        assert len(contents) == len({content["pid"] for content in contents}) == 2
        for content in contents:
            assert content["rank"] == 0
            assert content["steps_seen"] == 2
            lines = records(race.artifacts() / Path(content["jsonl"]).name)
            assert len(lines) == content["records_written"] > 0
            assert {line["pid"] for line in lines} == {content["pid"]}
        assert len(list(race.artifacts().glob("layers_*.jsonl"))) == 2

    def test_the_bad_value_of_one_of_them_is_in_the_metrics(self, race: Sweep) -> None:
        receipt = race.receipt()
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert receipt["metrics"]["layer_numerics_first_bad_step"] == 1
        assert race.cell("none")["metrics_summary"]["layer_numerics_first_bad_step"]["mean"] == 1
        assert len(receipt["details"]["processes"]) == 2


class TestChildren:
    """A program trains in processes that it starts, after a call or two of its own."""

    @pytest.mark.parametrize("name", CAPTURED)
    def test_what_is_seen_is_captured(self, shapes: Sweep, name: str) -> None:
        receipt = shapes.receipt(name)
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert shapes.command(name)["verdict"] == "pass"
        assert shapes.stdout(name).endswith(f"done {name}\n")

    def test_spawned_ranks_are_observed(self, shapes: Sweep) -> None:
        metrics = shapes.receipt("spawn")["metrics"]
        assert metrics["layer_numerics_first_bad_step"] == 2
        assert metrics["layer_numerics_first_bad_rank"] == 1
        assert metrics["layer_numerics_ranks"] == 2
        assert metrics["layer_numerics_steps"] == 3
        processes = shapes.receipt("spawn")["details"]["processes"]
        assert sorted((process["rank"], process["steps_seen"]) for process in processes) == [(0, 1), (0, 3), (1, 3)]

    def test_a_started_python_is_observed(self, shapes: Sweep) -> None:
        receipt = shapes.receipt("subprocess")
        assert receipt["metrics"]["layer_numerics_first_bad_step"] in (6, 7, 8)
        assert sorted(process["steps_seen"] for process in receipt["details"]["processes"]) == [1, 9]

    def test_a_fork_that_trains_makes_the_evidence_incomplete(self, shapes: Sweep) -> None:
        receipt = shapes.receipt("fork")
        assert receipt["verdict"] == "incomplete", receipt["reason"]
        assert "forked" in receipt["reason"]
        assert shapes.command("fork")["verdict"] == "error"
        assert shapes.stdout("fork") == "done fork\n"

    def test_a_fork_that_does_not_train_is_no_hole(self, shapes: Sweep) -> None:
        """The workers of a data loader, whatever modules they call, and a copy that evaluates."""
        (process,) = shapes.receipt("loader")["details"]["processes"]
        assert process["steps_seen"] == 3


class TestLayers:
    """A layer that was watched and not seen is never part of a silent pass."""

    def test_a_compiled_block_is_named(self, shapes: Sweep) -> None:
        receipt = shapes.receipt("compiled")
        assert receipt["verdict"] == "incomplete", receipt["reason"]
        assert "encoder" in receipt["reason"]
        assert "compile" in receipt["reason"]
        assert "stem" not in receipt["reason"]

    def test_a_layer_that_is_never_called_is_named_in_the_evidence(self, shapes: Sweep) -> None:
        receipt = shapes.receipt("loader")
        (process,) = receipt["details"]["processes"]
        (name,) = summary(shapes.artifacts("loader"))["unobserved_names"]
        assert name.endswith("spare")
        assert name in receipt["reason"] or name in str(process)

    def test_a_layer_that_could_not_be_read_is_reported_with_the_reason(self, shapes: Sweep) -> None:
        receipt = shapes.receipt("functionalize")
        content = summary(shapes.artifacts("functionalize"))
        assert receipt["verdict"] == "incomplete", receipt["reason"]
        assert content["tensors_skipped"]["functorch"]["count"] > 0
        assert "functorch" in receipt["reason"]
        assert content["tensors_skipped"]["functorch"]["layers"][0] in receipt["reason"]

    @pytest.mark.parametrize("name", INCOMPLETE)
    def test_the_trial_does_not_pass_and_the_program_is_not_disturbed(self, shapes: Sweep, name: str) -> None:
        assert shapes.trial(name)["result"]["passed"] is False
        assert shapes.cell(name)["passed_count"] == 0
        assert shapes.command(name)["exit_code"] == 0
        assert shapes.stdout(name) == f"done {name}\n"

    def test_the_sweep_exits_1_and_names_these_cells(self, shapes: Sweep) -> None:
        assert shapes.ran.code == 1
        error = shapes.ran.err.splitlines()[-1]
        assert error.startswith(f"Error: {len(INCOMPLETE)} of {len(CAPTURED) + len(INCOMPLETE)} requests")
        assert all(f"{name}-none" in error for name in INCOMPLETE)


class TestWorkloadsThatForgetTheirConfiguration:
    """A workload may do with its configuration what it likes; what was asked for stays asked for."""

    @pytest.mark.parametrize("name", ["trains", "trains_later"])
    def test_one_that_trains_is_captured(self, forgetful: Sweep, name: str) -> None:
        receipt = forgetful.receipt(name)
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert summary(forgetful.artifacts(name))["steps_seen"] == 3
        assert forgetful.trial(name)["result"]["passed"] is True
        assert forgetful.cell(name)["passed_count"] == 1

    @pytest.mark.parametrize("name", ["idle", "idle_later"])
    def test_one_that_trains_nothing_is_an_error(self, forgetful: Sweep, name: str) -> None:
        assert forgetful.receipt(name)["verdict"] in ("missing", "unattached")
        trial = forgetful.trial(name)
        assert trial["exit_status"] == "infrastructure_failed"
        assert trial["result"]["passed"] is False
        assert forgetful.cell(name)["passed_count"] == 0

    def test_the_sweep_exits_1_and_so_does_verify(self, forgetful: Sweep) -> None:
        assert forgetful.ran.code == 1
        error = forgetful.ran.err.splitlines()[-1]
        assert error.startswith("Error: 2 of 4 requests for evidence not satisfied")
        assert "idle" in error
        assert "trains" not in error
        verified = run(["aorta-collectors", "verify", str(forgetful.run_dir)], forgetful.run_dir)
        assert verified.code == 1
        assert "2 of 4 requests satisfied" in verified.out

    @pytest.mark.parametrize(("workload", "code"), [("forgetful", 0), ("idle", 1)])
    def test_a_run_without_a_recipe_is_held_to_it_too(self, workload: str, code: int, tmp_path: Path) -> None:
        words = ["run", "--workload", workload, "--collect", "layer_numerics", "--results-dir", "results"]
        ran = aorta(words, tmp_path, _installed(tmp_path))
        assert ran.code == code, ran.out + ran.err
        receipt = read_json(tmp_path / "results" / workload / "receipt_d0_m0_t0_layer_numerics.json")
        assert (receipt["verdict"] == "captured") == (code == 0)
        trial = read_json(tmp_path / "results" / workload / "trial_d0_m0_t0.json")
        assert trial["result"]["passed"] is (code == 0)


def test_a_rank_that_fails_ends_the_sweep_at_once(tmp_path: Path) -> None:
    """Rank 0 stands in a barrier then; nobody waits for evidence that it can no longer ask for."""
    env = _installed(tmp_path)
    recipe = workload_recipe(tmp_path / "r.yaml", "one_rank_fails", steps=1, workload_config={}, collect=EVERY_STEP)
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out"]
    began = time.monotonic()
    ran = run(["torchrun", "--standalone", "--nproc_per_node=2", str(BIN / "aorta"), *words], tmp_path, env)
    assert time.monotonic() - began < 30
    assert (tmp_path / "raised").exists()
    matrices = list((tmp_path / "out").rglob("matrix.json"))
    assert ran.code == 1 or matrices
    for path in matrices:
        row = Sweep(ran, path.parent, "workload").cell("baseline")
        assert row["passed_count"] == 0
