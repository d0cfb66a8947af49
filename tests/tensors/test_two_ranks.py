"""Two ranks of DistributedDataParallel: files of their own, gradients that are reduced, shards that are the rank's."""

from __future__ import annotations

import pytest

from aorta_collectors.api import Verdict
from tests.support import PYTHON, run
from tests.tensors.left import Left

PROGRAM = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from aorta_collectors.tensors import observe
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
torch.manual_seed(rank)
for step in range(2):
    model.zero_grad()
    model(torch.randn(2, 4)).square().sum().backward()
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(8.0).view(4, 2)
observe(distribute_tensor(whole, mesh, [Shard(0)]), name="shard")
observe(distribute_tensor(whole, mesh, [Replicate()]), name="copy")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, Left]:
    cwd = tmp_path_factory.mktemp("ranks")
    (cwd / "train.py").write_text(PROGRAM)
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    collector = ["-m", "aorta_collectors.tensors", "--dir", "out", "--keep", "values"]
    run([*launcher, *collector, "train.py"], cwd).ok()
    return Left(cwd / "out", "rank0"), Left(cwd / "out", "rank1")


def test_each_has_files_of_its_own(ranks: tuple[Left, Left]) -> None:
    names = {path.name for path in ranks[0].directory.iterdir()}
    assert names == {
        name
        for rank in (0, 1)
        for name in (
            f"summary_rank{rank}.json",
            f"tensors_rank{rank}.jsonl",
            f"values_rank{rank}_step1.safetensors",
            f"values_rank{rank}_step2.safetensors",
        )
    }
    assert [{line["rank"] for line in left.lines} for left in ranks] == [{0}, {1}]
    first = ranks[0].summary
    assert ranks[0].told({"keep": "values"}, run_id=first["run_id"], world_size=2)[0] is Verdict.CAPTURED
    assert ranks[0].names == ranks[1].names


def test_outputs_differ_and_reduced_gradients_do_not(ranks: tuple[Left, Left]) -> None:
    def same(name: str) -> list[bool]:
        return [ranks[0].one(name, call)["digest"] == ranks[1].one(name, call)["digest"] for call in (0, 1)]

    assert same("after_forward:0.output") == [False, False]
    assert same("after_backward:2.output_grad") == [False, False]
    assert same("after_backward:0.weight.grad") == [True, True]


def test_of_a_tensor_that_is_spread_each_has_its_shard(ranks: tuple[Left, Left]) -> None:
    shards = [left.values(left.one("user:shard")).tolist() for left in ranks]
    assert shards == [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]]
    assert [left.one("user:shard")["shape"] for left in ranks] == [[2, 2], [2, 2]]
    assert ranks[0].one("user:copy")["digest"] == ranks[1].one("user:copy")["digest"]
