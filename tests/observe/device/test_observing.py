"""The observer over a device whose results come late, and over graphs whose hooks run once; the fake device objects."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.observe.device.graphs import GraphWatch
from aorta_collectors.observe.device.launch import Kernels
from aorta_collectors.observe.device.rows import DeviceRows
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.reduce import reduce_later
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from tests.observe.device.fakes import FakeDevice
from tests.observe.watching import Seen, two_layers, watching

GROUP = WatchGroup(types=("Linear",), channels=CHANNELS)


def no_kernels() -> Kernels:
    raise ImportError("no Triton here")


class Remembering(DeviceRows):
    """Keeps the tensors that it is given."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device_of=lambda _: device, kernels=no_kernels)
        self.given: list[tuple[Tensor, Limits, bool, bool]] = []

    def queue(self, values: Tensor, limits: Limits, locate: bool, moments: bool = False) -> int:
        self.given.append((values, limits, locate, moments))
        return super().queue(values, limits, locate, moments)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Where all tensors lie from now on, as far as anybody can tell."""
    monkeypatch.setattr(Tensor, "is_cpu", property(lambda _: False), raising=False)
    device = FakeDevice()
    monkeypatch.setattr("aorta_collectors.observe.delivery.time.sleep", lambda _: device.advance())
    return device


def train(model: nn.Module, inputs: list[Tensor], device: FakeDevice | None = None) -> list[float]:
    """One step on each input; returns the losses. A device comes as far as the step before when one is over."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for given in inputs:
        optimizer.zero_grad()
        if device is None:
            loss = model(given).square().mean()
        else:
            with device.no_waiting():
                loss = model(given).square().mean()
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
        if device is not None:
            device.advance()
    return losses


def batches() -> list[Tensor]:
    torch.manual_seed(3)
    inputs = [torch.randn(3, 4) for _ in range(5)]
    inputs[3][1, 2] = math.nan
    return inputs


def fresh_model() -> nn.Sequential:
    torch.manual_seed(0)
    return two_layers()


def told(seen: Seen) -> list[Any]:
    return [
        (trace.step, each.site.layer, each.site.role, each.moment, each.shape, _comparable(each.stats))
        for trace in seen.traces
        for each in trace.observations
    ]


def _comparable(stats: Any) -> str:
    return repr(stats._replace(location=None))


class TestSteps:
    @pytest.fixture(autouse=True)
    def on_the_host(self) -> None:
        """What must come out, read before anything lies on the device."""
        with watching(GROUP) as (_, seen):
            self.losses = train(fresh_model(), batches())
        self.expected = told(seen)

    def test_it_sees_what_is_seen_on_the_host(self, device: FakeDevice) -> None:
        seen = Seen()
        observer = Observer(Request((GROUP,)), seen, rows=Remembering(device))
        observer.arm()
        assert repr(train(fresh_model(), batches(), device)) == repr(self.losses)
        observer.disarm()
        assert observer.errors == 0, observer.first_error
        assert told(seen) == self.expected
        assert any("nan_count=1," in each[-1] for each in self.expected)

    def test_a_step_is_handed_on_when_it_has_arrived(self, device: FakeDevice) -> None:
        seen, model = Seen(), fresh_model()
        observer = Observer(Request((GROUP,)), seen, rows=Remembering(device))
        observer.arm()
        for number, given in enumerate(batches()[:3], 1):
            with device.no_waiting():
                model(given)
            device.advance()
            assert [trace.step for trace in seen.traces] == list(range(1, number - 1))
        observer.disarm()
        assert [trace.step for trace in seen.traces] == [1, 2, 3]

    def test_one_that_never_arrives_is_counted_and_does_not_hold_up_the_end(
        self, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("aorta_collectors.observe.delivery._LAST_WAIT_S", 0.05)
        monkeypatch.setattr("aorta_collectors.observe.delivery.time.sleep", lambda _: None)
        seen, model = Seen(), fresh_model()
        observer = Observer(Request((GROUP,)), seen, rows=Remembering(device))
        observer.arm()
        with device.no_waiting():
            model(batches()[0])
            observer.disarm()
        assert seen.traces == []
        assert observer.reader.skipped == {"never arrived from the device": (1, ["(step 1)"])}
        assert observer.errors == 0


class FakeGraph:
    """As torch.cuda.CUDAGraph: a replay writes the rows of the capture again, from the tensors as they are then."""

    device: FakeDevice
    rows: Remembering

    def capture_begin(self) -> None:
        self.begin = len(self.rows.given)
        self.device.capturing = True

    def capture_end(self) -> None:
        self.device.capturing = False
        self.static = self.rows.given[self.begin :]
        capture = self.rows._capture
        assert capture is not None
        self.entries = list(capture.entries)

    def replay(self) -> None:
        for entry, given in zip(self.entries, self.static, strict=True):
            entry.row.write(reduce_later(*given))  # type: ignore[union-attr]


@contextlib.contextmanager
def graphs_on(device: FakeDevice) -> Iterator[tuple[Observer, Seen, type[FakeGraph]]]:
    rows, seen = Remembering(device), Seen()
    graph = type("Graph", (FakeGraph,), {"device": device, "rows": rows})
    observer = Observer(Request((GROUP,)), seen, rows=rows)
    watch = GraphWatch(rows, observer._graphs, observer.failed, graph=graph, current=lambda: torch.device("cpu"))
    observer.arm()
    watch.start()
    try:
        yield observer, seen, graph
    finally:
        watch.stop()
        observer.disarm()
    assert observer.errors == 0, observer.first_error


class TestGraphs:
    def test_each_replay_is_a_step(self, device: FakeDevice) -> None:
        model, given = fresh_model(), torch.ones(2, 4)
        with graphs_on(device) as (observer, seen, kind), torch.no_grad():
            model(given)  # to warm up, as every program does
            graph = kind()
            graph.capture_begin()
            model(given)
            graph.capture_end()
            assert observer.step == 1
            for value in (2.0, math.nan, 3.0):
                given.fill_(value)
                graph.replay()
                device.advance()
        assert [trace.step for trace in seen.traces] == [1, 2, 3, 4]
        places = seen.places(1)
        assert all(seen.places(step) == places for step in (2, 3, 4))
        inputs = [seen.only(step, "0", "input")[0] for step in (1, 2, 3, 4)]
        assert [each.stats.finite_max for each in inputs] == [1.0, 2.0, None, 3.0]
        assert [each.stats.nan_count for each in inputs] == [0, 0, 8, 0]
        assert [each.moment.invocation for each in inputs] == [1, 1, 1, 1]
        calls = [each.calls for trace in seen.traces for each in trace.observations if each.site.is_flow]
        assert calls == list(range(1, len(calls) + 1))

    def test_a_graph_of_a_part_belongs_to_the_step_around_it(self, device: FakeDevice) -> None:
        static = torch.ones(2, 4)

        class Model(nn.Module):
            def __init__(self, graph: FakeGraph) -> None:
                super().__init__()
                self.part, self.rest = nn.Linear(4, 4), nn.Linear(4, 4)
                self.graph, self.is_ready = graph, False

            def forward(self, x: Tensor) -> Tensor:
                if not self.is_ready:
                    self.graph.capture_begin()
                    self.part(static)
                    self.graph.capture_end()
                    self.is_ready = True
                static.copy_(x)
                self.graph.replay()
                return self.rest(x)

        with graphs_on(device) as (_, seen, kind), torch.no_grad():
            model = Model(kind())
            for value in (1.0, 5.0):
                model(torch.full((2, 4), value))
                device.advance()
        assert [each.stats.finite_max for step in (1, 2) for each in seen.only(step, "part", "input")] == [1.0, 5.0]
        assert [seen.only(step, "part", "act")[0].moment.invocation for step in (1, 2)] == [1, 1]
        assert [len(seen.only(step, "rest", "act")) for step in (1, 2)] == [1, 1]

    def test_optimizer_steps_inside_count_at_each_replay(self, device: FakeDevice) -> None:
        model, given = fresh_model(), torch.ones(2, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad(set_to_none=False)
            model(given).sum().backward()
            optimizer.step()

        with graphs_on(device) as (observer, seen, kind):
            step()
            graph = kind()
            graph.capture_begin()
            step()
            graph.capture_end()
            assert observer.training.num_steps == 1
            for _ in range(3):
                graph.replay()
                device.advance()
            assert observer.training.num_steps == 4
        assert [trace.step for trace in seen.traces] == [1, 2, 3, 4]
        assert [seen.only(number, "0", "act")[0].moment.optimizer_step for number in (1, 2, 3, 4)] == [0, 1, 2, 3]
        assert seen.only(4, "0", "wgrad")

    def test_a_graph_that_is_gone_is_forgotten(self, device: FakeDevice) -> None:
        model = fresh_model()
        with graphs_on(device) as (observer, _, kind):
            graph = kind()
            graph.capture_begin()
            model(torch.ones(2, 4))
            graph.capture_end()
            assert len(observer._graphs._captured) == 1
            del graph
            assert observer._graphs._captured == {}
