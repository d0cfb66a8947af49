"""torchrec's DLRM, sharded over two ranks by torchrun: one trace, collectives with their bytes, one causal order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aorta_collectors.numerics.spans.causal import causal_clocks, meeting
from tests.numerics.acceptance.running import NUMERICS, Tree
from tests.numerics.left import Left
from tests.support import PYTHON, run

#: Tables are sharded, the dense part is data parallel. Each rank starts a process of its own in the end.
PROGRAM = """
import logging
import os
import subprocess
import sys
import warnings
import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as file:
        file.write(os.environ.get("TRACEPARENT", "") + " " + os.environ.get("TRACESTATE", ""))
    sys.exit()

from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.models.dlrm import DLRM

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
tables = [
    EmbeddingBagConfig(name=f"t{i}", embedding_dim=8, num_embeddings=100, feature_names=[f"f{i}"]) for i in (1, 2)
]
dlrm = DLRM(
    EmbeddingBagCollection(device=torch.device("meta"), tables=tables),
    dense_in_features=10,
    dense_arch_layer_sizes=[16, 8],
    over_arch_layer_sizes=[8, 1],
)
apart = ParameterConstraints(sharding_types=["table_wise"])
planner = EmbeddingShardingPlanner(topology=Topology(2, "cpu"), constraints={"t1": apart, "t2": apart})
plan = planner.collective_plan(dlrm, [EmbeddingBagCollectionSharder()], dist.GroupMember.WORLD)
model = DistributedModelParallel(dlrm, device=torch.device("cpu"), plan=plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    values = torch.randint(0, 100, (8,))
    sparse = KeyedJaggedTensor.from_lengths_sync(["f1", "f2"], values, torch.ones(8, dtype=torch.int32))
    loss = model(torch.randn(4, 10), sparse).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    both = loss.detach().clone()
    dist.all_reduce(both)
    dist.barrier()
    if dist.get_rank() == 0:
        print(step, loss.item().hex(), both.item().hex(), flush=True)
subprocess.run([sys.executable, __file__, f"child{dist.get_rank()}.txt"], check=True)
dist.destroy_process_group()
"""
STEPS = 4
GIVEN = f"00-{'12' * 16}-{'34' * 8}-01"


class Job(NamedTuple):
    directory: Path
    out: str
    plain: str
    ranks: list[Left]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    directory = tmp_path_factory.mktemp("ranks")
    (directory / "train.py").write_text(PROGRAM)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    options = ["--dir", "out", "--trace-level", "layer", "--profile", "deferred", "--escalate", "off"]
    words = [*NUMERICS, *options, "--trace-output", "trace.json", *torchrun, "train.py"]
    ran = run(words, directory, {"TRACEPARENT": GIVEN, "TRACESTATE": "vendor=7,aorta=40"}).ok()
    (directory / "plain").mkdir()
    plain = run([PYTHON, *torchrun, str(directory / "train.py")], directory / "plain").ok()
    return Job(directory, ran.out, plain.out, [Left(directory / "out", f"rank{rank}") for rank in range(2)])


def test_results_are_the_same(job: Job) -> None:
    assert len(job.out.splitlines()) == STEPS
    assert job.out == job.plain


def test_each_rank_has_left_all_of_it(job: Job) -> None:
    for rank, left in enumerate(job.ranks):
        summary = left.summary
        assert (summary["rank"], summary["world_size"], summary["steps_seen"]) == (rank, 2, STEPS)
        assert summary["hook_errors"] == 0, summary["first_hook_error"]
        assert [warning for warning in summary["warnings"] if "roofline" not in warning] == []
        Tree(left.lines("spans")).assert_nested()
        layers = {line["layer"] for line in left.lines("stats") if line["direction"] == "forward"}
        assert any("dense_arch" in layer for layer in layers)
        assert any("over_arch" in layer for layer in layers)
        lines = left.lines("steps")
        assert [(line["step"], line["kind"]) for line in lines] == [(n, "training") for n in range(1, STEPS + 1)]
    told = [float.fromhex(line.split()[1]) for line in job.out.splitlines()]
    assert [line["loss"] for line in job.ranks[0].lines("steps")] == told


def test_collectives_are_seen_with_their_bytes(job: Job) -> None:
    for left in job.ranks:
        spans = [span for span in left.lines("spans") if span["kind"] == "collective"]
        names = {span["name"] for span in spans}
        assert names >= {"all_reduce", "all_to_all", "barrier"}
        of_loss = [span for span in spans if span["name"] == "all_reduce" and span["attributes"]["bytes"] == 4]
        assert len(of_loss) == STEPS
        assert all(span["duration_ns"] > 0 for span in spans)
        told = {row["operation"]: row for row in left.summary["collectives"] if row["source"] == "call"}
        called = [span for span in spans if span["attributes"].get("source") != "ddp"]
        for name in names:
            of_name = [span["attributes"]["bytes"] for span in called if span["name"] == name]
            assert told[name]["calls"] == len(of_name)
            assert told[name]["bytes"] == sum(of_name)
        assert told["barrier"]["calls"] == STEPS


def test_gradients_that_are_reduced_have_their_bytes(job: Job) -> None:
    # What the last part takes in: 8 of the dense part, and a product for each pair of the three.
    dense = (10 * 16 + 16) + (16 * 8 + 8) + (11 * 8 + 8) + (8 + 1)
    for left in job.ranks:
        rows = [row for row in left.summary["collectives"] if row.get("source") == "ddp"]
        assert sum(row["bytes"] for row in rows) == STEPS * 4 * dense


def test_there_is_one_trace(job: Job) -> None:
    spans = [left.lines("spans") for left in job.ranks]
    assert {span["trace_id"] for of_rank in spans for span in of_rank} == {"12" * 16}
    ids = [span["span_id"] for of_rank in spans for span in of_rank]
    assert len(set(ids)) == len(ids)
    for of_rank in spans:
        (process,) = (span for span in of_rank if span["kind"] == "process")
        assert process["parent_span_id"] == "34" * 8
        assert process["lamport"] > 40


def test_processes_below_them_are_told_of_it(job: Job) -> None:
    for rank, left in enumerate(job.ranks):
        parent, state = (job.directory / f"child{rank}.txt").read_text().split()
        (process,) = (span for span in left.lines("spans") if span["kind"] == "process")
        assert parent == f"00-{'12' * 16}-{process['span_id']}-01"
        assert "vendor=7" in state.split(",")


def test_causal_clocks_agree_at_what_both_met(job: Job) -> None:
    orders = [
        sorted(((span["lamport"], meeting(span)) for span in left.lines("spans")), key=lambda event: event[0])
        for left in job.ranks
    ]
    clocks = causal_clocks(orders)
    at: list[Mapping[Any, int]] = []
    for order, causal in zip(orders, clocks, strict=True):
        assert all(before < after for before, after in pairwise(causal))
        at.append({met: clock for (_, met), clock in zip(order, causal, strict=True) if met is not None})
    both = set(at[0]) & set(at[1])
    assert len(both) >= 2 * STEPS
    assert all(at[0][met] == at[1][met] for met in both)


def test_flows_join_the_ranks(job: Job) -> None:
    events = json.loads((job.directory / "trace.json").read_text())["traceEvents"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert set(starts) == set(ends)
    assert len(starts) >= 2 * STEPS
    slices = [event for event in events if event["ph"] == "X"]
    for number, start in starts.items():
        assert start["pid"] != ends[number]["pid"]
        for flow in (start, ends[number]):
            assert any(
                (one["pid"], one["tid"]) == (flow["pid"], flow["tid"])
                and one["ts"] <= flow["ts"] <= one["ts"] + one["dur"]
                for one in slices
            )
