"""The watch on CUDA graphs, with a class of graphs whose replays write to rows as a real one's kernels do."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch

from aorta_collectors.observe.device.graphs import GraphWatch
from aorta_collectors.observe.device.launch import Kernels
from aorta_collectors.observe.device.rows import DeviceRows, SealedRows
from aorta_collectors.observe.limits import Limits
from tests.observe.device.fakes import FakeDevice

DEVICE = FakeDevice()


def no_kernels() -> Kernels:
    raise ImportError("no Triton here")


class Graph:
    """As torch.cuda.CUDAGraph: records what is done between begin and end, and does it again at each replay."""

    def __init__(self) -> None:
        self.kernels: list[Callable[[], None]] = []
        self.device = DEVICE
        self.fails = False

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        if self.fails:
            raise RuntimeError("cannot capture")
        self.device.capturing = True

    def capture_end(self) -> None:
        self.device.capturing = False

    def replay(self) -> None:
        for kernel in self.kernels:
            kernel()


class Told:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.rows: list[tuple[int, SealedRows]] = []

    def capture_begins(self, number: int) -> None:
        assert not DEVICE.capturing
        self.events.append(("begins", number))

    def capture_ended(self, number: int) -> None:
        assert not DEVICE.capturing
        self.events.append(("ended", number))

    def replayed(self, number: int, rows: SealedRows) -> None:
        self.rows.append((number, rows))

    def forgotten(self, number: int) -> None:
        self.events.append(("forgotten", number))


class Setting:
    def __init__(self) -> None:
        DEVICE.__init__()  # type: ignore[misc]
        self.rows = DeviceRows(device_of=lambda _: DEVICE, kernels=no_kernels)
        self.told = Told()
        self.errors: list[Exception] = []
        self.watch = GraphWatch(
            self.rows, self.told, self.errors.append, graph=Graph, current=lambda: torch.device("cpu")
        )

    def capture(self, values: list[torch.Tensor], graph: Graph | None = None) -> Graph:
        graph = graph or Graph()
        graph.capture_begin()
        for value in values:
            self.rows.queue(value, Limits(), False)
        graph.capture_end()
        return graph


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    originals = dict(vars(Graph))
    made.watch.start()
    yield made
    made.watch.stop()
    assert dict(vars(Graph)) == originals
    assert made.errors == []


def found(rows: SealedRows) -> list[float | None]:
    return [stats.finite_max for stats in rows.stats()]


class TestWatch:
    def test_each_replay_delivers_the_rows_as_it_left_them(self, setting: Setting) -> None:
        graph = setting.capture([torch.tensor([1.0]), torch.tensor([2.0])])
        assert setting.told.events == [("begins", 1), ("ended", 1)]
        memory = setting.watch._captures[graph]._blocks[0].memory.view(torch.float64)
        for replay in range(3):
            graph.kernels = [lambda value=replay: memory[1, 5:7].fill_(value + 10.0)]  # type: ignore[misc]
            with DEVICE.no_waiting():
                graph.replay()
            DEVICE.advance()
        assert [(number, found(rows)) for number, rows in setting.told.rows] == [
            (1, [1.0, 10.0]),
            (1, [1.0, 11.0]),
            (1, [1.0, 12.0]),
        ]

    def test_graphs_are_told_apart(self, setting: Setting) -> None:
        graphs = [setting.capture([torch.tensor([float(number)])]) for number in (1, 2, 3)]
        for graph in reversed(graphs):
            graph.replay()
        assert [(number, found(rows)) for number, rows in setting.told.rows] == [(3, [3.0]), (2, [2.0]), (1, [1.0])]

    def test_a_graph_without_rows_costs_nothing(self, setting: Setting) -> None:
        graph = setting.capture([])
        with DEVICE.on(3):
            graph.replay()
        assert setting.told.rows == []
        assert setting.told.events == [("begins", 1), ("ended", 1)]
        assert DEVICE.follows == []
        assert len(setting.watch._captures) == 0

    def test_rows_of_the_program_around_a_graph_stay_its_own(self, setting: Setting) -> None:
        assert setting.rows.queue(torch.tensor([5.0]), Limits(), False) == 0
        graph = setting.capture([torch.tensor([1.0])])
        assert setting.rows.queue(torch.tensor([6.0]), Limits(), False) == 1
        graph.replay()
        eager = setting.rows.seal()
        assert eager is not None
        assert found(eager) == [5.0, 6.0]
        assert [found(rows) for _, rows in setting.told.rows] == [[1.0]]

    def test_a_graph_that_is_captured_anew_or_is_gone_is_forgotten(self, setting: Setting) -> None:
        graph = setting.capture([torch.tensor([1.0])])
        setting.capture([torch.tensor([2.0])], graph)
        graph.replay()
        assert [(number, found(rows)) for number, rows in setting.told.rows] == [(2, [2.0])]
        assert ("forgotten", 1) in setting.told.events
        del graph
        gc.collect()
        assert ("forgotten", 2) in setting.told.events
        assert len(setting.watch._captures) == 0

    def test_a_capture_that_fails_ends(self, setting: Setting) -> None:
        graph = Graph()
        graph.fails = True
        with pytest.raises(RuntimeError, match="cannot capture"):
            graph.capture_begin()
        assert not setting.rows.is_capturing
        assert setting.told.events == [("begins", 1), ("ended", 1)]

    def test_a_replay_inside_of_another_capture_is_part_of_that(self, setting: Setting) -> None:
        inner = setting.capture([torch.tensor([1.0])])
        outer = Graph()
        outer.capture_begin()
        inner.replay()
        outer.capture_end()
        assert setting.told.rows == []

    def test_graphs_live_on_after_the_watch_and_another_tools_wrapper_stays(self) -> None:
        setting = Setting()
        original = Graph.replay
        setting.watch.start()
        graph = setting.capture([torch.tensor([1.0])])
        ours = Graph.replay
        calls = []

        def theirs(graph: Graph) -> None:
            calls.append(graph)
            ours(graph)

        Graph.replay = theirs  # type: ignore[method-assign]
        try:
            setting.watch.stop()
            graph.replay()
            assert calls == [graph]
            assert setting.told.rows == []
        finally:
            Graph.replay = original  # type: ignore[method-assign]

    def test_errors_of_the_sink_do_not_reach_the_program(self) -> None:
        setting = Setting()
        setting.told.replayed = lambda number, rows: 1 / 0  # type: ignore[assignment, method-assign]
        setting.watch.start()
        try:
            graph = setting.capture([torch.tensor([1.0])])
            graph.replay()
            assert [type(error) for error in setting.errors] == [ZeroDivisionError]
        finally:
            setting.watch.stop()


def test_torch_has_the_methods_that_are_wrapped() -> None:
    assert {"capture_begin", "capture_end", "replay"} <= set(vars(torch.cuda.CUDAGraph))
