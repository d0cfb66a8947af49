"""Memory on a GPU: a graph's pool is told apart, and what history there is names the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.memory import point
from tests.memory.left import Left, Line, armed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.timeout(300),
]

MIB = 1 << 20


class Model(nn.Module):
    """Keeps 8 MiB of each forward pass, in `kept`, where it is asked to."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(512, 512)
        self.keeps = keeps
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.keeps:
            self.kept.append(torch.ones(2 * MIB, device=x.device))  # planted
        y: Tensor = self.fc(x)
        return y


@pytest.fixture(autouse=True)
def _nothing_left_over() -> Iterator[None]:
    torch.cuda.empty_cache()
    yield
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.empty_cache()


def train(model: Model, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()


def device_of(line: Line) -> dict[str, Any]:
    (device,) = line["devices"]
    assert device["device"] == "cuda:0"
    return dict(device)


def named(left: Left, name: str) -> list[Line]:
    return [line for line in left.points if line["name"] == name]


def test_totals_are_torch_s_own_and_pools_add_up_to_them(tmp_path: Path) -> None:
    with armed(tmp_path):
        train(Model(keeps=False).cuda(), 2)
        point("now")
        expected = (
            torch.cuda.memory_allocated(),
            torch.cuda.memory_reserved(),
            torch.cuda.max_memory_allocated(),
            torch.cuda.max_memory_reserved(),
        )
    device = device_of(named(Left(tmp_path), "user:now")[0])
    names = ("allocated", "reserved", "peak_allocated", "peak_reserved")
    assert tuple(device[name] for name in names) == expected
    assert device["history"] == "state only"
    for field in ("allocated", "active", "reserved", "requested", "inactive"):
        assert sum(pool[field] for pool in device["pools"]) == device[field]


def test_what_is_kept_in_the_forward_pass_shows_there(tmp_path: Path) -> None:
    with armed(tmp_path, detail="totals"):
        train(Model(keeps=True).cuda(), 5)
    left = Left(tmp_path)
    assert all(device_of(line)["pools"] is None for line in left.points)
    for before, after, later in zip(
        named(left, "before_forward"), named(left, "before_forward")[1:], named(left, "after_step"), strict=False
    ):
        assert device_of(after)["allocated"] - device_of(before)["allocated"] >= 8 * MIB
        assert abs(device_of(after)["allocated"] - device_of(later)["allocated"]) < MIB


def test_the_pool_of_a_graph_is_retained_capacity(tmp_path: Path) -> None:
    with armed(tmp_path):
        train(Model(keeps=False).cuda(), 1)
        static = torch.zeros(4 * MIB, device="cuda")
        torch.cuda.synchronize()
        point("before")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = (static * 2).add_(1).relu()
        point("captured")
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        point("replayed")
        del result
        point("released")
        del graph
        torch.cuda.empty_cache()
        point("gone")
    left = Left(tmp_path)
    private = {
        line["name"].removeprefix("user:"): [pool for pool in device_of(line)["pools"] if pool["kind"] == "private"]
        for line in left.points
        if line["point"] == "user"
    }
    assert private["before"] == []
    (captured,), (replayed,), (released,) = private["captured"], private["replayed"], private["released"]
    assert captured["pool"] != "0,0"
    assert captured["reserved"] >= 16 * MIB
    # Replays take nothing more, and what the program lets go of stays the graph's.
    assert captured == replayed
    assert released["reserved"] == captured["reserved"]
    assert released["active"] < captured["active"]
    assert released["inactive"] > 0
    assert released["largest_inactive"] > 0
    assert private["gone"] == []


def test_streams_are_told_apart(tmp_path: Path) -> None:
    cuda: Any = torch.cuda
    side = cuda.Stream()
    with armed(tmp_path):
        train(Model(keeps=False).cuda(), 1)
        with torch.cuda.stream(side):
            kept = torch.ones(8 * MIB, device="cuda")
        point("aside")
    pools = device_of(named(Left(tmp_path), "user:aside")[0])["pools"]
    assert {pool["stream"] for pool in pools if pool["allocated"] >= kept.nbytes} == {side.cuda_stream}


def test_history_names_the_line_and_how_long_it_was_kept(tmp_path: Path) -> None:
    torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=100_000)
    with armed(tmp_path):
        train(Model(keeps=True).cuda(), 4)
    left = Left(tmp_path)
    assert left.summary["history"]["cuda:0"] == "recorded"
    of_device = [line for line in left.growth if line["memory"] == "cuda:0"]
    assert len(of_device) == len(left.points) - 1
    held = {line["order"]: device_of(line)["requested"] for line in left.points}
    for line in of_device:
        assert line["complete"], line
        since, until = line["since"]["order"], line["until"]["order"]
        assert line["bytes"] == held[until] - held[since]
        assert line["bytes"] == line["allocated"]["bytes"] - line["freed"]["bytes"]
        if line["until"]["name"] == "after_forward":
            first = line["stacks"][0]
            frame = first["frames"][0]
            assert (frame["file"], frame["line"], frame["function"]) == (__file__, _line_of("# planted"), "forward")
            assert first["bytes"] == 8 * MIB
            assert first["lifetimes"] == [{"freed_before": None, "bytes": 8 * MIB, "count": 1}]
    # An activation is given back in the backward pass.
    forward = next(line for line in of_device if line["until"]["name"] == "after_forward" and line["step"] == 3)
    ends = {end["freed_before"] for stack in forward["stacks"] for end in stack["lifetimes"]}
    assert forward["until"]["order"] + 1 in ends


def test_a_record_that_is_too_short_is_told_as_incomplete(tmp_path: Path) -> None:
    torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=8)
    with armed(tmp_path):
        train(Model(keeps=True).cuda(), 3)
    lines = [line for line in Left(tmp_path).growth if line["memory"] == "cuda:0"]
    assert lines
    assert not all(line["complete"] for line in lines)


def test_training_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    def weights() -> Tensor:
        torch.manual_seed(0)
        model = Model(keeps=False).cuda()
        train(model, 4)
        return model.fc.weight.detach().clone()

    bare = weights()
    with armed(tmp_path, scope=("*",)):
        assert torch.equal(weights(), bare)


def _line_of(marker: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(marker))
