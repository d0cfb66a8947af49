"""From the capture of a CUDA graph to what is recorded of each of its replays."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from aorta_collectors.tensors.elements import elements_of
from aorta_collectors.tensors.graphs.slots import MakeSlots, Slots
from aorta_collectors.tensors.observation import Place, Subject

# A parameter, and its gradient, are there after the replay: they are read then, as they are when it has ended.
_THERE_AFTERWARDS = ("parameter", "gradient")
NO_ROOM = "no room for it in the CUDA graph"
LOST = "lost in the replay of a CUDA graph"


class Takes(Protocol):
    """What records tensors."""

    def take_replayed(self, subject: Subject, tensor: Tensor, place: Place, device: str) -> None:
        """A tensor as a replay left it on a device."""

    def pass_over(self, reason: str) -> None:
        """A tensor is not recorded."""


class _Passed(NamedTuple):
    """A tensor that passes in a graph."""

    subject: Subject
    is_compiled: bool
    device: str


class _Graph(NamedTuple):
    slots: Slots
    passed: list[_Passed]


class Captures:
    """A `GraphListener` of observe.lifecycle. Each replay counts as if the program had called the model again.

    Args:
        make: Makes the slots of a graph, by its number.

    Attributes:
        number: Of the graph that is captured, None outside of a capture.
    """

    def __init__(self, make: MakeSlots) -> None:
        self._make = make
        self._graphs: dict[int, _Graph] = {}
        self._replays: dict[int, int] = {}
        self._recorder: Takes | None = None
        self.number: int | None = None

    def record_with(self, recorder: Takes) -> None:
        self._recorder = recorder

    def capture_began(self, number: int) -> None:
        self._graphs[number] = _Graph(self._make(number), [])
        self.number = number

    def capture_ended(self, number: int) -> None:
        self.number = None

    def is_captured(self, tensor: Tensor) -> bool:
        """Whether what is done with a tensor now becomes part of a graph."""
        return self.number is not None and tensor.is_cuda and torch.cuda.is_current_stream_capturing()

    def add(self, subject: Subject, tensor: Tensor, place: Place) -> str | None:
        """A tensor comes by while a graph is captured; returns why it will not be recorded at replays, or None."""
        if self.number is None or subject.kind in _THERE_AFTERWARDS:
            return None
        elements = elements_of(tensor)
        if elements.exact is None:
            return elements.reason
        graph = self._graphs[self.number]
        if not graph.slots.put(elements.exact):
            return NO_ROOM
        graph.passed.append(_Passed(subject, place.compiled, str(tensor.device)))
        return None

    def replayed(self, number: int) -> None:
        graph = self._graphs.get(number)
        if graph is None or self._recorder is None:
            return
        replay = self._replays[number] = self._replays.get(number, 0) + 1
        for passed, tensor in zip(graph.passed, graph.slots.read(), strict=True):
            if tensor is None:
                self._recorder.pass_over(LOST)
            else:
                place = Place(passed.is_compiled, number, replay)
                self._recorder.take_replayed(passed.subject, tensor, place, passed.device)

    def forgotten(self, number: int) -> None:
        graph = self._graphs.pop(number, None)
        self._replays.pop(number, None)
        if graph is not None:
            graph.slots.close()

    def close(self) -> None:
        for number in list(self._graphs):
            self.forgotten(number)
