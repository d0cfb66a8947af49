"""CUDA graphs, with a class of graphs that does again at each replay what was done between begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from tests.observe.lifecycle.told import CALLS, STEP, Told, everything, train, two_layers

X = torch.ones(3, 4)


class Graph:
    """As torch.cuda.CUDAGraph: what is captured is computed at replays alone."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.fails = False

    def capture_begin(self, pool: object = None) -> None:
        if self.fails:
            raise RuntimeError("cannot capture")

    def capture_end(self) -> None:
        """Nothing is left open."""

    def replay(self) -> None:
        """What a GPU does is seen by no hook."""

    def capture(self) -> Graph:
        self.capture_begin()
        self.work()
        self.capture_end()
        return self


class ToldOfGraphs(Told):
    def capture_began(self, number: int) -> None:
        self.points.append(f"capture_began {number}")

    def capture_ended(self, number: int) -> None:
        self.points.append(f"capture_ended {number}")

    def replayed(self, number: int) -> None:
        self.points.append(f"replayed {number}")

    def forgotten(self, number: int) -> None:
        self.points.append(f"forgotten {number}")


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    originals = dict(vars(Graph))
    yield
    assert dict(vars(Graph)) == originals


def armed(*, graphs: bool) -> tuple[ToldOfGraphs, Lifecycle]:
    told = ToldOfGraphs()
    lifecycle = Lifecycle(told, everything, gradients=True, graphs=told if graphs else None)
    lifecycle.arm()
    return told, lifecycle


def test_a_replay_of_a_whole_training_step_is_a_step() -> None:
    model = two_layers()
    told, lifecycle = armed(graphs=False)
    graph = Graph(lambda: train(model, 1)).capture()
    assert (told.points, lifecycle.step) == ([], 0)
    for _ in range(2):
        graph.replay()
    lifecycle.disarm()
    graph.replay()
    assert (told.outside(1), told.outside(2)) == (STEP, STEP)
    assert told.held["after_step"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert (lifecycle.step, lifecycle.fields()["optimizer_steps"], lifecycle.errors) == (2, 2, 0)


def test_who_listens_to_graphs_is_told_of_what_is_captured_and_of_each_replay() -> None:
    model = two_layers()
    told, lifecycle = armed(graphs=True)
    seen: list[bool] = []
    told.at_left = lambda layer, result: seen.append(lifecycle.is_capturing)
    train(model, 1)
    graph = Graph(lambda: model(X)).capture()
    captured = ["capture_began 1", "before_forward 1", *CALLS, "after_forward 1", "capture_ended 1"]
    assert told.points[-len(captured) :] == captured
    assert seen == [False] * 4 + [True] * 4
    graph.replay()
    lifecycle.disarm()
    assert told.of(2) == ["before_forward 2", "replayed 1", "after_forward 2"]


def test_a_replay_within_a_models_call_is_part_of_it() -> None:
    inner = two_layers()
    told, lifecycle = armed(graphs=True)
    graph = Graph(lambda: inner(X)).capture()

    class Graphed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.graphed = nn.Linear(4, 4), inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            graph.replay()
            return self.fc(x)  # type: ignore[no-any-return]

    model = Graphed()
    model(X)
    lifecycle.disarm()
    assert lifecycle.step == 1
    assert [point.split()[0] for point in told.of(1)].count("before_forward") == 1
    assert "replayed 1" in told.of(1)


def test_an_optimizers_step_in_a_graph_of_its_own_is_part_of_the_step_at_hand() -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told, lifecycle = armed(graphs=False)
    model(X).sum().backward()
    graph = Graph(optimizer.step).capture()
    for _ in range(2):
        model(X).sum().backward()
        graph.replay()
    lifecycle.disarm()
    assert [told.outside(step) for step in (1, 2, 3)] == [STEP[:3], STEP, STEP]
    assert lifecycle.fields()["optimizer_steps"] == 2


def test_a_capture_that_fails_is_none() -> None:
    model = two_layers()
    told, lifecycle = armed(graphs=False)
    graph = Graph(lambda: None)
    graph.fails = True
    with pytest.raises(RuntimeError, match="cannot capture"):
        graph.capture()
    assert not lifecycle.is_capturing
    train(model, 1)
    lifecycle.disarm()
    assert told.outside(1) == STEP
