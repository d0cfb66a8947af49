"""Tensors of CUDA graphs, without a device: a graph is played by whoever writes to the slots."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.graphs.captures import NO_ROOM, Captures
from aorta_collectors.tensors.graphs.maker import SlotMaker
from aorta_collectors.tensors.graphs.slots import OwnSlots
from aorta_collectors.tensors.recorder import Recorder
from tests.tensors.left import Kept


class Captured(Captures):
    """Host memory is captured as a device's would be."""

    def is_captured(self, tensor: Tensor) -> bool:
        return self.number is not None


class Graph:
    """A recorder and a graph that is captured, of which `replay` computes something."""

    def __init__(self, most_bytes: int = 1000, **options: Any) -> None:
        self.slots: list[OwnSlots] = []
        self.captures = Captured(self.made)
        self.kept = Kept()
        self.recorder = Recorder(Config(**options), self.kept, captures=self.captures)
        self.most_bytes = most_bytes

    def made(self, number: int) -> OwnSlots:
        self.slots.append(OwnSlots(self.most_bytes))
        return self.slots[-1]

    def take(self, tensor: Tensor, kind: str = "output", layer: str = "fc") -> None:
        self.recorder.take("after_forward", layer, "Linear", kind, "", tensor)

    def replay(self, step: int, value: float, number: int = 1) -> None:
        self.recorder.begin(step)
        for copy in self.slots[number - 1].read():
            copy.fill_(value)
        self.captures.replayed(number)


def test_each_replay_counts_on_as_another_call() -> None:
    graph = Graph()
    graph.recorder.begin(1)
    graph.take(torch.ones(2))  # the warm-up, outside of any capture
    graph.captures.capture_began(1)
    graph.take(torch.ones(2))
    graph.take(torch.ones(3), layer="head")
    graph.captures.capture_ended(1)
    for step in (2, 3):
        graph.replay(step, float(step))
    graph.recorder.end(True)
    told = [
        (line["name"], line["invocation"], line["step"], line["graph"], line["replay"], line["mean"])
        for line in (each.line() for each in graph.kept.observations)
    ]
    assert told == [
        ("after_forward:fc.output", 0, 1, None, None, 1.0),
        ("after_forward:fc.output", 1, 2, 1, 1, 2.0),
        ("after_forward:head.output", 0, 2, 1, 1, 2.0),
        ("after_forward:fc.output", 2, 3, 1, 2, 3.0),
        ("after_forward:head.output", 1, 3, 1, 2, 3.0),
    ]


def test_replays_of_steps_that_are_not_observed_are_counted() -> None:
    graph = Graph(steps=("3",))
    graph.captures.capture_began(1)
    graph.take(torch.ones(2))
    graph.captures.capture_ended(1)
    for step in (1, 2, 3):
        graph.replay(step, float(step))
    graph.recorder.end(True)
    (line,) = (each.line() for each in graph.kept.observations)
    assert (line["invocation"], line["replay"], line["mean"]) == (2, 3, 3.0)


def test_two_graphs_are_told_apart_and_one_that_is_gone_gives_its_memory_back() -> None:
    graph = Graph()
    for number in (1, 2):
        graph.captures.capture_began(number)
        graph.take(torch.ones(2))
        graph.captures.capture_ended(number)
    graph.replay(1, 5.0, number=2)
    graph.replay(2, 6.0, number=1)
    graph.captures.forgotten(1)
    assert graph.slots[0].read() == []
    assert len(graph.slots[1].read()) == 1
    graph.captures.replayed(1)
    graph.recorder.end(True)
    lines = [each.line() for each in graph.kept.observations]
    assert [(line["graph"], line["replay"], line["mean"]) for line in lines] == [(2, 1, 5.0), (1, 1, 6.0)]
    graph.captures.close()
    assert graph.slots[1].read() == []


def test_what_has_no_room_is_counted_and_parameters_are_read_when_a_replay_has_ended() -> None:
    graph = Graph(most_bytes=20)
    graph.captures.capture_began(1)
    graph.take(torch.ones(4))
    graph.take(torch.ones(4), layer="too much")
    graph.take(torch.ones(1), kind="parameter")
    graph.captures.capture_ended(1)
    assert graph.recorder.tally.fields()["tensors_passed_over"] == {NO_ROOM: 1}
    graph.replay(1, 1.0)
    graph.recorder.end(True)
    assert [each.subject.layer for each in graph.kept.observations] == ["fc"]


class FailingProbe(OwnSlots):
    """Fails from some call on, as the slots of torch-cudagraph-debug may. It says nothing about that package itself,
    whose real probes only run on a GPU, see tests/gpu.
    """

    def __init__(self, puts: int, reads: int) -> None:
        super().__init__(1000)
        self.puts, self.reads = puts, reads

    def put(self, tensor: Tensor) -> bool:
        self.puts -= 1
        if self.puts < 0:
            raise RuntimeError("no more")
        return super().put(tensor)

    def read(self) -> list[Tensor]:
        self.reads -= 1
        if self.reads < 0:
            raise RuntimeError("gone")
        return super().read()


def test_a_probe_that_fails_is_left_for_ours_and_said_once() -> None:
    warned: list[str] = []
    maker = SlotMaker(warned.append, "0.2.0", lambda number: FailingProbe(puts=1, reads=1))
    slots = maker.make(1)
    assert slots.put(torch.zeros(1))
    assert slots.put(torch.ones(1))
    assert [None if value is None else value.item() for value in slots.read()] == [0.0, 1.0]
    assert [None if value is None else value.item() for value in slots.read()] == [None, 1.0]
    assert warned == ["torch-cudagraph-debug 0.2.0 is not used for CUDA graphs: RuntimeError: no more"]
    assert isinstance(maker.make(2), OwnSlots)
    slots.close()


def test_without_the_package_the_slots_are_ours() -> None:
    warned: list[str] = []
    assert isinstance(SlotMaker(warned.append, None).make(1), OwnSlots)
    assert warned == []
