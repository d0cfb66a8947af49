"""The looks at memory: at each point of a step that is asked for, one line of numbers.

What a look takes itself is kept small, since it would be part of what the next one finds: a line is written at once, or
with a few others where modules are many, and nothing grows with the length of the run. So a process that is killed for
what it holds has left what it held.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter, time_ns
from typing import Any

from torch import Tensor, nn

from aorta_collectors.memory.allocator import Allocator
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.course import Course
from aorta_collectors.memory.devices import Devices
from aorta_collectors.memory.growth import Growth, Seen
from aorta_collectors.memory.host import HostMemory
from aorta_collectors.memory.output import Output
from aorta_collectors.memory.steps import MOST_LINES, Steps
from aorta_collectors.observe.cost import Histogram
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.lifecycle.listener import OwnParameter

USER = "user"
# Lines around modules that wait for others, and for how long at most.
_AT_ONCE = 64
_AT_LATEST_S = 0.1
# Of lines that wait for the process's files, before its first model.
_MOST_EARLY = 1000
# A program may make up as many names as it likes.
_MOST_NAMES = 10_000


class Watch:
    """A `Listener` that looks at memory at every point.

    Args:
        attached: Called where a model was found.
        beat: Called when a step begins.
        warn: Told what is not as it was asked for.
        allocator: Of the devices.

    Attributes:
        output: Where lines go; None as long as the process has no files, and lines wait.
        course: What has been found so far.
        looks: How long each look took.
        unmatched: Patterns of `scope` that no module has matched so far.
        dropped: Points that there was no room for.
    """

    def __init__(
        self,
        config: Config,
        attached: Callable[[str], None],
        beat: Callable[[int], None],
        warn: Callable[[str], None],
        allocator: Allocator,
    ) -> None:
        self._config = config
        self._attached = attached
        self._beat = beat
        self._warn = warn
        self._host = HostMemory()
        self._devices = Devices(allocator, pools=config.reads_pools, warn=warn)
        self._growth = Growth(allocator, config.stacks) if config.stacks else None
        self.output: Output | None = None
        self.course = Course()
        self.steps = Steps(config, warn)
        self.looks = Histogram()
        self.unmatched = list(config.scope or ())
        self.dropped = 0
        self._step = 0
        self._is_looking = config.looks_at_step(0)
        self._is_anew = True
        self._order = 0
        self._invocations: Counter[str] = Counter()
        self._lines: list[dict[str, Any]] = []
        self._grown: list[dict[str, Any]] = []
        self._written_at = 0.0
        self._is_at_it = self._is_writing = False
        self._between = threading.RLock()

    def open(self) -> None:
        """Be ready to look. Raises OSError where this system does not tell of memory."""
        self._host.open()
        if self._host.untold:
            self._warn(f"this system does not tell {', '.join(self._host.untold)} of memory; they are 0")
        # What the first of anything takes is taken before the first point.
        self._host.read()
        self._devices.read(anew=True)

    def close(self) -> None:
        self.flush(is_end=True)
        self._host.close()

    @property
    def history(self) -> dict[str, str]:
        """By memory, whether the application recorded its allocations."""
        return dict(self._growth.history) if self._growth is not None else {}

    @property
    def has_points(self) -> bool:
        """Whether some wait that have no place yet."""
        return bool(self._lines)

    def cost_fields(self) -> dict[str, Any]:
        """What looking has cost, in microseconds a look."""
        times = {f"look_us_p{percent}": self.looks.quantile(percent / 100) for percent in (50, 95)}
        told = {name: None if seconds is None else round(seconds * 1e6, 3) for name, seconds in times.items()}
        return {"looks": self.looks.count, "looks_ms": round(self.looks.total * 1e3, 3), **told}

    def wants(self, path: str, module: nn.Module) -> bool:
        """Whether calls of a module are looked around."""
        patterns = self._config.patterns_of(path)
        self.unmatched = [pattern for pattern in self.unmatched if pattern not in patterns]
        return bool(patterns)

    # -- what the lifecycle tells

    def attached(self, label: str) -> None:
        self._attached(label)

    def step_began(self, step: int) -> None:
        self._step = step
        self._is_looking = self.steps.looks_at(step, self._written)
        self._is_anew = True
        self._beat(step)

    def before_forward(self, step: int) -> None:
        self._point("before_forward")

    def entered(self, layer: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._look("before_forward", layer)

    def left(self, layer: str, module: nn.Module, result: Any) -> None:
        self._look("after_forward", layer)

    def after_forward(self, step: int) -> None:
        self._point("after_forward")

    def output_gradient(self, layer: str, module: nn.Module, path: str, grad: Tensor) -> None:
        """Not asked for."""

    def after_backward(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        self._point("after_backward")

    def after_step(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        self._point("after_step")

    def step_ended(self, step: int, is_last: bool) -> None:
        self.flush(is_end=True)

    # -- looking

    def user(self, name: str) -> None:
        """A point of the program's own."""
        self._look(USER, "", f"{USER}:{name}")

    def _point(self, point: str) -> None:
        if point in self._config.points:
            self._look(point, "")

    def _look(self, point: str, layer: str, name: str = "") -> None:
        began = perf_counter()
        with self._between:
            if self._is_at_it:  # the handler of a signal that has come in the middle of a look
                return
            self._is_at_it = True
            try:
                self._take(point, layer, name or (f"{point}:{layer}" if layer else point), began)
            finally:
                self._is_at_it = False

    def _take(self, point: str, layer: str, name: str, began: float) -> None:
        is_known = name in self._invocations or len(self._invocations) < _MOST_NAMES
        invocation = self._invocations[name]
        if is_known:
            self._invocations[name] += 1
        self.course.came(point, layer)
        if not self._is_looking:
            return
        if self._is_full() or not is_known:
            self.dropped += 1
            return
        line = self._line(point, layer, name, invocation)
        self.course.looked(line)
        self._lines.append(line)
        self._order += 1
        if not layer or len(self._lines) >= _AT_ONCE or began - self._written_at > _AT_LATEST_S:
            self._written_at = began
            self.flush(is_end=False)
        self.looks.add(perf_counter() - began)

    def _line(self, point: str, layer: str, name: str, invocation: int) -> dict[str, Any]:
        host = self._host.read()
        # Before the first step, a point of the program's own may be all that there is to notice a device by.
        devices = self._devices.read(anew=self._is_anew or point == USER)
        self._is_anew = False
        seen = Seen(self._step, self._order, name, invocation, time_ns())
        if self._growth is not None:
            recorded = {device["device"]: device["history"] for device in devices}
            self._growth.looked(seen, is_tracing=host["python"] is not None, devices=recorded)
            host["python"] = self._growth.python_bytes(host["python"])
        return {
            "step": seen.step,
            "order": seen.order,
            "name": name,
            "invocation": invocation,
            "point": point,
            "layer": layer,
            "time_ns": seen.time_ns,
            "host": host,
            "devices": devices,
        }

    @property
    def _written(self) -> int:
        return self.output.points.written if self.output is not None else 0

    def _is_full(self) -> bool:
        return self._written >= MOST_LINES or len(self._lines) >= _MOST_EARLY

    def flush(self, *, is_end: bool) -> None:
        """Write what waits.

        Args:
            is_end: Whether a step is over: what devices have recorded is read then.
        """
        with self._between:
            if self._is_writing:  # the program has come back into here, such as in a signal handler of its
                return
            self._is_writing = True
            try:
                if self.output is not None:
                    _write(self._lines, self.output.write_points, self.output.points)
                if self._growth is None or not is_end:
                    return
                self._grown += self._growth.take()
                if self.output is not None and self.output.growth is not None:
                    _write(self._grown, self.output.write_growth, self.output.growth)
            finally:
                self._is_writing = False


def _write(lines: list[dict[str, Any]], write: Callable[[Sequence[Mapping[str, Any]]], None], file: RecordFile) -> None:
    """Write what waits, all or nothing; what could not be written for want of stack, or was interrupted, waits on."""
    waiting, written = list(lines), file.written
    try:
        write(waiting)
    finally:
        if file.written > written or file.error is not None:
            del lines[: len(waiting)]
