"""A CUDA graph's replay ends the profiling of bricks, and is said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.graphs import GraphExclusion
from aorta_collectors.numerics.spans.lamport import LamportClock
from tests.numerics.profiled import profiled

CONFIG = Config(profile="deferred")


class Graph:
    """As torch.cuda.CUDAGraph: what was captured runs again, and no module is called."""

    replays = 0

    def replay(self) -> str:
        self.replays += 1
        return "replayed"


@pytest.fixture(autouse=True)
def _graph_is_as_before() -> Iterator[None]:
    original = vars(Graph)["replay"]
    yield
    assert vars(Graph)["replay"] is original


def test_no_brick_is_timed_from_the_step_of_the_first_replay_on() -> None:
    warnings: list[str] = []
    exclusion, table = GraphExclusion(warnings.append, Graph), BrickTable(CONFIG)
    model, graph = nn.Sequential(nn.Linear(4, 4)), Graph()
    with profiled(CONFIG, [exclusion, table], Timeline(CONFIG, LamportClock())) as steps:
        for step in range(1, 7):
            model(torch.ones(2, 4))
            if step >= 4:
                assert graph.replay() == "replayed"
    assert graph.replays == 3
    assert [bool(trace.timings) for trace in steps.traces] == [True] * 3 + [False] * 3
    assert [row["calls"] for row in table.rows()] == [3, 3]
    assert warnings == [exclusion.reason]
    assert "in step 4" in exclusion.fields()["profile_excluded"]


def test_without_a_replay_nothing_is_excluded() -> None:
    exclusion = GraphExclusion([].append, Graph)
    with profiled(CONFIG, [exclusion], Timeline(CONFIG, LamportClock())) as steps:
        nn.Linear(4, 4)(torch.ones(2, 4))
    assert exclusion.fields() == {"profile_excluded": None}
    assert steps.traces[0].timings


def test_a_replay_before_the_first_step_and_after_the_end() -> None:
    exclusion = GraphExclusion([].append, Graph)
    graph = Graph()
    exclusion.start()
    graph.replay()
    exclusion.stop()
    assert "before step 1" in str(exclusion.reason)
    late = GraphExclusion([].append, Graph)
    late.start()
    ours = Graph.replay
    late.stop()
    ours(graph)  # of somebody who kept it
    assert late.reason is None


def test_what_others_wrapped_around_it_stays() -> None:
    original = vars(Graph)["replay"]
    exclusion = GraphExclusion([].append, Graph)
    exclusion.start()
    ours = Graph.replay
    theirs = lambda graph: ours(graph)  # noqa: E731
    Graph.replay = theirs  # type: ignore[method-assign]
    exclusion.stop()
    assert vars(Graph)["replay"] is theirs
    assert Graph().replay() == "replayed"
    assert exclusion.reason is None
    Graph.replay = original  # type: ignore[method-assign]


def test_torch_has_the_method() -> None:
    assert "replay" in vars(torch.cuda.CUDAGraph)
