"""The tensors collector on a real device: CUDA graphs, and what torch.compile records as such."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.tensors.graphs.slots import OwnSlots
from tests.tensors.left import Left, armed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("torch_cudagraph_debug") is None, reason="needs torch-cudagraph-debug"
)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).cuda()


def inputs(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 8, generator=generator).cuda() for _ in range(count)]


def of_replays(left: Left) -> dict[tuple[str, int | None], list[float]]:
    found = {}
    for line in left.lines:
        if line["replay"] is not None:
            found[line["name"], line["replay"]] = left.values(line).flatten().tolist()
    return found


def graphed(net: nn.Module) -> Callable[[Tensor], Any]:
    static = torch.zeros(4, 8, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        net(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        net(static)

    def call(x: Tensor) -> None:
        static.copy_(x)
        graph.replay()

    return call


@pytest.mark.parametrize("slots", ["ours", pytest.param("package", marks=needs_package)])
def test_replays_leave_what_eager_computes(tmp_path: Path, slots: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if slots == "ours":
        monkeypatch.setattr("aorta_collectors.tensors.graphs.maker.installed", lambda: None)
    net = model()
    with armed(tmp_path / "eager", points=("after_forward",), keep="values") as eager, torch.no_grad():
        for x in inputs(3):
            net(x)
    torch.cuda.synchronize()
    with armed(tmp_path / "graph", points=("after_forward",), keep="values") as left:
        call = graphed(net)
        for x in inputs(3):
            call(x)
    assert not any("torch-cudagraph-debug" in warning for warning in left.summary["warnings"])
    replayed = of_replays(left)
    for line in eager.lines:
        expected = eager.values(line).flatten().tolist()
        assert replayed[line["name"], line["invocation"] + 1] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert left.named(line["name"])[-1]["device"] == line["device"]


def test_graphed_callables_are_observed_forward_and_backward(tmp_path: Path) -> None:
    net = model()
    sample = torch.zeros(4, 8, device="cuda", requires_grad=True)
    with armed(tmp_path, points=("after_forward", "after_backward"), keep="values") as left:
        call = torch.cuda.make_graphed_callables(net, (sample,))
        for x in inputs(2):
            call(x.requires_grad_()).sum().backward()
    names = {name for name, _ in of_replays(left)}
    assert "after_forward:0.output" in names
    assert "after_backward:0.output_grad" in names


def test_compiled_code_that_is_recorded_as_graphs(tmp_path: Path) -> None:
    net = model()
    with armed(tmp_path, points=("after_forward",), keep="values") as left, torch.no_grad():
        compiled: Any = torch.compile(net, mode="reduce-overhead")
        for x in inputs(5):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(x)
    with armed(tmp_path / "eager", points=("after_forward",), keep="values") as eager, torch.no_grad():
        for x in inputs(5):
            net(x)
    for line in eager.named("after_forward:2.output"):
        found = left.one(line["name"], line["invocation"])
        torch.testing.assert_close(left.values(found), eager.values(line), rtol=1e-3, atol=1e-3)


def test_slots_are_given_back_with_their_graph() -> None:
    slots = OwnSlots(1 << 20)
    graph = torch.cuda.CUDAGraph()
    source = torch.ones(1 << 10, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        slots.put(source * 2)
    graph.replay()
    (copy,) = slots.read()
    assert copy.sum().item() == 2 << 10
    del copy, graph
    slots.close()
    assert slots.read() == []
