"""Takes tensors as they are at one moment: counts how often each name comes, and records those of the steps asked for.

Nothing waits for a device within a step, unless so much is on its way that memory has to be kept in bounds: what a step
has left there is written one step later, or two.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from aorta_collectors.observe.host_copies import Arrival, HostCopies
from aorta_collectors.observe.modes import out_of_modes, out_of_transforms
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.elements import elements_of
from aorta_collectors.tensors.graphs.captures import Captures
from aorta_collectors.tensors.names import USER
from aorta_collectors.tensors.observation import Observation, Place, Subject, attribute_path
from aorta_collectors.tensors.reader import IN_CAPTURE, Reader
from aorta_collectors.tensors.tally import Tally

#: Observations of one process. At some 600 bytes a line, 150 MB.
MOST_LINES = 250_000
# Different names. More come of models that are built anew all the time.
_MOST_NAMES = 500_000
# Of copies that are on their way from devices, before the oldest are waited for.
_MOST_IN_FLIGHT_BYTES = 1 << 30
# Stretches whose copies have not arrived; the oldest of more is waited for.
_MOST_WAITING = 2
# Observations that are handed on together; a step may also never end.
_MOST_AT_ONCE = 10_000
_LAST_WAIT_S = 10.0
_IN_BETWEEN = "observed in the middle of another observation, as by the handler of a signal"


class Sink(Protocol):
    """Where observations go."""

    def take_in(self, step: int, observations: Sequence[Observation]) -> None:
        """Write some of a step, which are complete, in their order. A step may come in several parts."""


class _Past(NamedTuple):
    step: int
    observations: list[Observation]
    arrival: Arrival


class Recorder:
    """Safe to use from several threads. What is taken belongs to the step that `begin` named last.

    Args:
        sink: Gets observations.
        most_lines: That are recorded of all steps together.
        captures: Gets tensors of CUDA graphs that are captured; without it they are passed over.

    Attributes:
        tally: What it has seen.
    """

    def __init__(
        self,
        config: Config,
        sink: Sink,
        copies: HostCopies | None = None,
        *,
        most_lines: int = MOST_LINES,
        captures: Captures | None = None,
    ) -> None:
        self._config = config
        self._sink = sink
        self._most_lines = most_lines
        self._captures = captures
        if captures is not None:
            captures.record_with(self)
        self.tally = Tally()
        self._reader = Reader(config, copies or HostCopies(), self.tally.found_bad)
        self._lock = threading.RLock()
        self._invocations: dict[str, int] = {}
        self._is_taking = False
        self._step = 0
        self._is_observed = config.observes_step(0)
        self._taken: list[Observation] = []
        self._waiting: deque[_Past] = deque()

    # -- what is told to it

    def begin(self, step: int) -> None:
        """What comes from now on belongs to `step`."""
        with self._lock:
            self._hand_on()  # what came before the first step, or between two
            self._step = step
            self._is_observed = self._config.observes_step(step)

    def take(
        self,
        point: str,
        layer: str,
        module_type: str,
        kind: str,
        path: str,
        tensor: Tensor,
        *,
        compiled: bool = False,
        graph: int | None = None,
        replay: int | None = None,
    ) -> None:
        """Record a tensor of a module as it is now; in a step that is not observed, count it.

        Args:
            path: As observe.tensors gives it; the name of a parameter.
            compiled: Whether code of torch.compile runs here.
            graph, replay: The CUDA graph whose replay has just written the tensor, and which of its replays that was.
        """
        path = path if kind in ("parameter", "gradient") else attribute_path(path)
        self._take(Subject(point, layer, module_type, kind, path), tensor, Place(compiled, graph, replay))

    def take_user(
        self,
        name: str,
        tensor: Tensor,
        *,
        path: str = "",
        gradient: bool = False,
        compiled: bool = False,
        graph: int | None = None,
        replay: int | None = None,
    ) -> None:
        """The same of a tensor that the program has named, or of its gradient."""
        kind = "user_gradient" if gradient else "user"
        subject = Subject(USER, "", "", kind, attribute_path(path), name)
        self._take(subject, tensor, Place(compiled, graph, replay))

    def take_replayed(self, subject: Subject, tensor: Tensor, place: Place, device: str) -> None:
        """The same of what a replay of a CUDA graph has left on a device, wherever it has been copied to."""
        self._take(subject, tensor, place, device)

    def pass_over(self, reason: str) -> None:
        """A tensor is not recorded."""
        with self._lock:
            self.tally.passed_over(reason)

    def end(self, is_last: bool) -> None:
        """The step is over: hand on what has arrived of it, or of earlier ones; at the end, all that does."""
        with self._lock:
            self._hand_on()
            self._write_arrived(_LAST_WAIT_S if is_last else 0.0)
            if is_last:
                for past in self._waiting:
                    for _ in past.observations:
                        self.tally.passed_over("never arrived from the device")
                self._waiting.clear()

    # -- taking

    def _take(self, subject: Subject, tensor: Tensor, place: Place, device: str | None = None) -> None:
        # Neither the program's modes nor its subclass are to see what is asked of its tensor here, nor to answer it.
        with torch._C.DisableTorchFunctionSubclass():
            out_of_transforms(out_of_modes, self._take_now, subject, tensor, place, device)

    def _take_now(self, subject: Subject, tensor: Tensor, place: Place, device: str | None) -> None:
        with self._lock:
            if self._is_taking:
                self.tally.passed_over(_IN_BETWEEN)
                return
            self._is_taking = True
            try:
                self._take_alone(subject, tensor, place, device)
            finally:
                self._is_taking = False

    def _take_alone(self, subject: Subject, tensor: Tensor, place: Place, device: str | None) -> None:
        if self._captures is not None and self._captures.is_captured(tensor):
            reason = self._captures.add(subject, tensor, place)
            if reason is not None:
                self.tally.passed_over(reason)
            return
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            self.tally.passed_over(IN_CAPTURE)
            return
        invocation = self._counted(subject.name)
        if invocation is None or not self._is_observed:
            return
        self.tally.came_by(subject.point)
        if self.tally.observed >= self._most_lines:
            self.tally.lines_dropped += 1
            return
        elements = elements_of(tensor)
        observation = Observation.of(subject, invocation, self._step, self.tally.observed, tensor, elements, place)
        observation.device = device or observation.device
        self._reader.read(observation, tensor, elements)
        self.tally.took(observation)
        self._taken.append(observation)
        if self._reader.in_flight_bytes > _MOST_IN_FLIGHT_BYTES:
            self._catch_up()
        elif len(self._taken) >= _MOST_AT_ONCE:
            self._hand_on()
            self._write_arrived()

    def _counted(self, name: str) -> int | None:
        """How often a name had come before; None where there are too many of them."""
        invocation = self._invocations.get(name, 0)
        if not invocation and len(self._invocations) >= _MOST_NAMES:
            self.tally.passed_over(f"more than {_MOST_NAMES} names")
            return None
        self._invocations[name] = invocation + 1
        return invocation

    # -- handing on

    def _hand_on(self) -> None:
        """What was taken so far is complete, but for its copies that are on their way."""
        if self._taken:
            taken, self._taken = self._taken, []
            self._waiting.append(_Past(self._step, taken, self._reader.seal()))

    def _write_arrived(self, patience_s: float = 0.0) -> None:
        until = time.monotonic() + patience_s
        while self._waiting and self._has_arrived(self._waiting[0].arrival, until):
            self._write(self._waiting.popleft())

    def _has_arrived(self, arrival: Arrival, until: float) -> bool:
        """Whether a stretch can be written; the oldest of several is waited for, however long it takes."""
        while not out_of_modes(arrival.is_there):
            if len(self._waiting) > _MOST_WAITING:
                return out_of_modes(arrival.wait)
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True

    def _catch_up(self) -> None:
        """So much is on its way that all of it is waited for: memory is kept in bounds before time is."""
        self._hand_on()
        while self._waiting and self._waiting[0].arrival.wait():
            self._write(self._waiting.popleft())

    def _write(self, past: _Past) -> None:
        out_of_modes(self._reader.look_at, past.observations)
        self._sink.take_in(past.step, past.observations)
