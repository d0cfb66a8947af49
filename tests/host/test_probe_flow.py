"""Commands after `--`: every form of launch is captured, and the command notices nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.schema_check import first_error
from tests.host.support import PROGRAM, Sweep, once, probe_recipe, sweep_command
from tests.support import records, summary

pytestmark = pytest.mark.sweep

EVERY_STEP = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
#: With this learning rate the loss overflows in step 8.
ARGUMENTS = ["--lr", "2", "--steps", "9"]

DLRM = """
import logging, os, socket, warnings
import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.models.dlrm import DLRM

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
dist.init_process_group("gloo")
torch.manual_seed(0)
tables = [
    EmbeddingBagConfig(name=f"t{i}", embedding_dim=8, num_embeddings=100, feature_names=[f"f{i}"]) for i in (1, 2)
]
bags = EmbeddingBagCollection(device=torch.device("meta"), tables=tables)
model = DLRM(bags, dense_in_features=10, dense_arch_layer_sizes=[16, 8], over_arch_layer_sizes=[8, 1])
model = DistributedModelParallel(model, device=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
for step in range(1, 13):
    sparse = KeyedJaggedTensor.from_lengths_sync(
        ["f1", "f2"], torch.randint(0, 100, (8,)), torch.ones(8, dtype=torch.int32)
    )
    loss = model(torch.randn(4, 10), sparse).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
"""


def _programs(directory: Path) -> None:
    (directory / "train.py").write_text(PROGRAM)
    (directory / "pkg").mkdir()
    (directory / "pkg" / "__init__.py").write_text("")
    (directory / "pkg" / "train.py").write_text(PROGRAM)
    (directory / "launch.sh").write_text(f"#!/bin/bash\ncd .\npython train.py {' '.join(ARGUMENTS)}\n")


def _bare(directory: Path) -> Sweep:
    _programs(directory)
    recipe = probe_recipe(directory / "r.yaml")
    return sweep_command(directory, recipe, ["python", "train.py", *ARGUMENTS])


def _with_ambient_variables(directory: Path) -> Sweep:
    _programs(directory)
    recipe = probe_recipe(directory / "r.yaml", ["none", "no_collectors"], collect=EVERY_STEP)
    ambient = {"NANLOG_CHANNELS": "weight", "NANLOG_DIR": "elsewhere", "NANLOG_RUN_ID": "mine"}
    return sweep_command(directory, recipe, ["python", "train.py", *ARGUMENTS], env=ambient)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The command in a sweep that asks for nothing."""
    sweep = once(tmp_path_factory, "probe_bare", _bare)
    sweep.ran.ok()
    return sweep


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """`python train.py`, from a shell that has NANLOG_* variables of its own."""
    return once(tmp_path_factory, "probe_script", _with_ambient_variables)


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def build(directory: Path) -> Sweep:
        (directory / "dlrm.py").write_text(DLRM)
        recipe = probe_recipe(directory / "r.yaml", collect=EVERY_STEP)
        return sweep_command(directory, recipe, ["python", "dlrm.py"])

    return once(tmp_path_factory, "probe_dlrm", build)


def _check(sweep: Sweep, route: str, ranks: int = 1) -> None:
    sweep.ran.ok()
    receipt = sweep.receipt()
    assert receipt["verdict"] == "captured", receipt["reason"]
    assert receipt["route"] == route
    assert receipt["metrics"]["layer_numerics_ranks"] == ranks
    assert receipt["metrics"]["layer_numerics_first_bad_step"] in (6, 7, 8)
    for rank in range(ranks):
        content = summary(sweep.artifacts(), rank)
        assert content["run_id"] in receipt["run_ids"]
        assert (content["rank"], content["world_size"]) == (rank, ranks)
        assert content["steps_seen"] == 9
        assert content["records_written"] == len(records(sweep.artifacts() / f"layers_rank{rank}.jsonl"))


def test_a_script_is_captured(script: Sweep) -> None:
    _check(script, "front-end")
    assert script.cell("none")["metrics_summary"]["layer_numerics_first_bad_step"]["n"] == 1
    assert script.trial()["exit_status"] == "ok"


#: Each form alone is started in tests/launchers.
FORMS = {
    "module": (["env", "A=1", "python", "-u", "-X", "faulthandler", "-m", "pkg.train"], "front-end"),
    "shell script": (["bash", "launch.sh"], "environment"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_launch_is_captured_with_its_output_unchanged(form: str, bare: Sweep, tmp_path: Path) -> None:
    command, route = FORMS[form]
    _programs(tmp_path)
    arguments = [] if form == "shell script" else ARGUMENTS
    recipe = probe_recipe(tmp_path / "r.yaml")
    sweep = sweep_command(tmp_path, recipe, [*command, *arguments], "--collect", "layer_numerics")
    _check(sweep, route)
    assert sweep.stdout() == bare.stdout()


def test_torchrun_leaves_evidence_of_both_ranks(bare: Sweep, tmp_path: Path) -> None:
    _programs(tmp_path)
    recipe = probe_recipe(tmp_path / "r.yaml")
    command = ["torchrun", "--standalone", "--nproc_per_node=2", "train.py", *ARGUMENTS]
    sweep = sweep_command(tmp_path, recipe, command, "--collect", "layer_numerics")
    _check(sweep, "front-end", ranks=2)
    processes = sweep.receipt()["details"]["processes"]
    assert [process["rank"] for process in processes] == [0, 1]
    assert len({process["pid"] for process in processes}) == 2
    assert sorted(sweep.stdout().splitlines()) == sorted(2 * bare.stdout().splitlines())


def test_a_rank_without_evidence_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import os, sys\nif os.environ["RANK"] == "1": sys.exit()\n' + PROGRAM)
    recipe = probe_recipe(tmp_path / "r.yaml", collect=EVERY_STEP)
    sweep = sweep_command(tmp_path, recipe, ["torchrun", "--standalone", "--nproc_per_node=2", "train.py"])
    assert sweep.ran.code == 1
    assert sweep.receipt()["verdict"] == "incomplete"
    assert "rank(s) 1 of 2" in sweep.receipt()["reason"]
    assert sweep.command()["exit_code"] == 0


def test_two_programs_of_one_script_both_leave_evidence(tmp_path: Path) -> None:
    _programs(tmp_path)
    (tmp_path / "launch.sh").write_text("python train.py\npython train.py --lr 2 --steps 9\n")
    recipe = probe_recipe(tmp_path / "r.yaml", collect=EVERY_STEP)
    sweep = sweep_command(tmp_path, recipe, ["bash", "launch.sh"])
    sweep.ran.ok()
    processes = sweep.receipt()["details"]["processes"]
    assert sorted(process["steps_seen"] for process in processes) == [5, 9]
    assert len({process["files"] for process in processes}) == 2
    assert sweep.receipt()["metrics"]["layer_numerics_first_bad_step"] in (6, 7, 8)


def test_a_switch_left_over_in_the_shell_does_not_let_a_request_pass(tmp_path: Path) -> None:
    """Either it is not passed on, or the reason says that it was in the way."""
    _programs(tmp_path)
    recipe = probe_recipe(tmp_path / "r.yaml", collect=EVERY_STEP)
    sweep = sweep_command(tmp_path, recipe, ["python", "train.py"], env={"AORTA_COLLECTORS": "off"})
    receipt = sweep.receipt()
    assert receipt["verdict"] != "off"
    assert sweep.ran.code == (0 if receipt["verdict"] == "captured" else 1)
    assert "AORTA_COLLECTORS" in receipt["ignored_environment"] or "AORTA_COLLECTORS" in receipt["reason"]


def test_stdout_is_the_same_as_without_collect(script: Sweep, bare: Sweep) -> None:
    assert bare.stdout().splitlines()[7] == "8 inf"
    assert script.stdout() == bare.stdout()
    assert script.stdout("no_collectors") == bare.stdout()


def test_a_command_with_no_collectors_is_off_and_its_argv_untouched(script: Sweep, bare: Sweep) -> None:
    receipt = script.receipt("no_collectors")
    assert (receipt["verdict"], receipt["route"]) == ("off", "unchanged")
    assert script.command("no_collectors")["argv"] == bare.command()["argv"] == ["python", "train.py", *ARGUMENTS]
    assert "nanlog" not in (script.command_dir("no_collectors") / "stderr.log").read_text()


def test_variables_of_the_callers_shell_are_not_passed_on_and_are_listed(script: Sweep) -> None:
    receipt = script.receipt()
    assert receipt["ignored_environment"] == ["NANLOG_CHANNELS", "NANLOG_DIR", "NANLOG_RUN_ID"]
    assert summary(script.artifacts())["channels"] == ["act", "igrad"]
    assert summary(script.artifacts())["run_id"] != "mine"
    assert not (script.run_dir.parent.parent / "elsewhere").exists()


def test_the_receipt_holds_the_launch_as_it_was(script: Sweep) -> None:
    receipt = script.receipt()
    assert first_error("receipt", receipt) is None
    launch = receipt["launch"]
    assert launch["argv"] == script.command()["argv"]
    assert launch["argv"][-5:] == ["train.py", *ARGUMENTS]
    assert launch["env"]["NANLOG_DIR"] == str(script.artifacts())
    assert launch["env"]["NANLOG_SAMPLE_EVERY"] == "1"
    assert launch["env"].get("NANLOG_CHANNELS") is None
    assert [launch["env"]["NANLOG_RUN_ID"]] == receipt["run_ids"]


def test_the_first_bad_layer_of_a_torchrec_dlrm_is_found(dlrm: Sweep) -> None:
    dlrm.ran.ok()
    receipt = dlrm.receipt()
    assert receipt["verdict"] == "captured", receipt["reason"]
    content = summary(dlrm.artifacts())
    assert content["roots"] == ["DistributedModelParallel"]
    lines = records(dlrm.artifacts() / "layers_rank0.jsonl")
    first = content["first_bad"]
    assert first is not None
    assert min(line["step"] for line in lines if line["bad"]) == first["step"] <= 11
    assert receipt["metrics"]["layer_numerics_first_bad_layer"] == first["layer"]
    # The run-up: the same layer's magnitude before it went bad is finite and grows.
    run_up = [
        line["finite_abs_max"]
        for line in lines
        if line["layer_name"] == first["layer"] and line["direction"] == "fwd" and line["step"] < first["step"]
    ]
    assert len(run_up) == first["step"] - 1
    assert run_up[-1] > run_up[0]
    assert f"step {first['step']} " in dlrm.ran.out
