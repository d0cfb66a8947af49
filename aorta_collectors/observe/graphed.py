"""Steps inside CUDA graphs: what hooks saw once, while a graph was captured, is seen again at each of its replays."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from aorta_collectors.observe.device.rows import SealedRows
from aorta_collectors.observe.in_flight import Replayed
from aorta_collectors.observe.observation import Moment, Moments, Observation
from aorta_collectors.observe.reader import Reader
from aorta_collectors.observe.trace import CallTrace, Mark


class GraphEye(Protocol):
    """Whose steps the replays are (the observer's)."""

    @property
    def reader(self) -> Reader: ...
    @property
    def moments(self) -> Moments: ...
    @property
    def calls_traced(self) -> CallTrace | None: ...
    @property
    def optimizer_steps(self) -> int: ...
    def begin(self) -> None: ...
    def go_on(self) -> None: ...
    def count_optimizer_steps(self, number: int) -> None: ...


class _Captured(NamedTuple):
    """What the hooks saw while one graph was captured.

    Attributes:
        observations: Of tensors on the device; each holds the number of its row among the graph's.
        marks: By index among them.
        begins_step: Whether a model's call lies inside.
        optimizer_step: Optimizer steps taken before the capture.
        optimizer_steps: Those inside.
    """

    observations: list[Observation]
    marks: Mapping[int, Mark]
    begins_step: bool
    optimizer_step: int
    optimizer_steps: int


class GraphSteps:
    """A sink of GraphWatch. A replay is a step if the graph holds a model's call, and part of one otherwise.

    Nothing is computed while a graph is captured, so that a capture is no step.
    """

    def __init__(self, eye: GraphEye) -> None:
        self._eye = eye
        self._captured: dict[int, _Captured] = {}
        self._number: int | None = None
        self._begins_step = False
        self._optimizer_step = self._calls = 0
        self._outside: list[Observation] = []
        self._marks_outside: dict[int, Mark] = {}

    @property
    def is_capturing(self) -> bool:
        return self._number is not None

    def model_called(self) -> None:
        """The call of a model that would begin a step lies inside the graph that is captured."""
        self._begins_step = True

    def capture_begins(self, number: int) -> None:
        eye = self._eye
        self._number, self._begins_step = number, False
        self._optimizer_step = eye.optimizer_steps
        self._calls = eye.reader.calls
        self._outside = eye.reader.exchange([])
        self._marks_outside = eye.calls_traced.exchange_marks({}) if eye.calls_traced is not None else {}
        # A step of its own, so that modules count their calls anew; steps have positive numbers.
        eye.moments.begin_step(-number, eye.moments.first.batch_id, self._optimizer_step)

    def capture_ended(self, number: int) -> None:
        if self._number is None:
            return
        eye = self._eye
        self._number = None
        seen = eye.reader.exchange(self._outside)
        marks = eye.calls_traced.exchange_marks(self._marks_outside) if eye.calls_traced is not None else {}
        in_graph = [index for index, each in enumerate(seen) if type(each.reduced) is int]
        # Tensors in host memory were looked at once, and are not again.
        eye.reader.add(each for each in seen if type(each.reduced) is not int)
        eye.reader.calls = self._calls
        taken = eye.optimizer_steps - self._optimizer_step
        eye.count_optimizer_steps(-taken)
        self._captured[number] = _Captured(
            [seen[index] for index in in_graph],
            {place: marks[index] for place, index in enumerate(in_graph) if index in marks},
            self._begins_step,
            self._optimizer_step,
            taken,
        )
        eye.go_on()

    def replayed(self, number: int, rows: SealedRows) -> None:
        captured = self._captured.get(number)
        if captured is None:
            return
        eye = self._eye
        if captured.begins_step:
            eye.begin()
        moments: dict[Moment, Moment] = {}
        later = eye.optimizer_steps - captured.optimizer_step
        batch_id = eye.moments.first.batch_id
        now = time.monotonic()
        calls = eye.reader.calls
        again = []
        for seen in captured.observations:
            assert isinstance(seen.reduced, int)
            moment = moments.get(seen.moment)
            if moment is None:
                taken = seen.moment.optimizer_step + later
                moment = moments[seen.moment] = seen.moment._replace(batch_id=batch_id, optimizer_step=taken)
            calls += seen.site.is_flow
            reduced = Replayed(rows, seen.reduced)
            again.append(seen._replace(calls=calls, time=now, reduced=reduced, moment=moment))
        eye.reader.calls = calls
        first = eye.reader.add(again)
        if eye.calls_traced is not None:
            for index, mark in captured.marks.items():
                eye.calls_traced.mark(first + index, mark)
        eye.count_optimizer_steps(captured.optimizer_steps)

    def forgotten(self, number: int) -> None:
        self._captured.pop(number, None)
