"""From readings to lines: of each in a step that is sampled, of those that are bad in any other.

Lines are made when a step is over, or later, when the numbers that it has on a device have come over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.layers.layer_reading import LayerReading
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.observe.stats_rows import SealedStats, StatsRows

# Steps whose numbers have not arrived: normally one, since they are read a step late.
_MOST_WAITING = 2
_LAST_WAIT_S = 10.0


class Seen(NamedTuple):
    """A reading whose statistics may be a row on a device.

    Attributes:
        seq: Its place among all tensors of the step that were looked at.
        is_sampled: Whether it gets a line although it is not bad.
    """

    seq: int
    reading: LayerReading
    row: int | None
    is_sampled: bool


class _Past(NamedTuple):
    step: int
    seen: list[Seen]
    rows: SealedStats | None


class StatsLines:
    """
    Args:
        rows: What is sealed at the end of each step.
        pass_over: Told of readings that never arrived, and why.

    Attributes:
        written, clean: Readings that got a line, and that got none since they are not bad.
        first_bad: The line of the first bad one in the order of steps.
    """

    def __init__(self, rows: StatsRows, pass_over: Callable[[Brick, str], None]) -> None:
        self.written = 0
        self.clean = 0
        self.first_bad: dict[str, Any] | None = None
        self._rows = rows
        self._pass_over = pass_over
        self._waiting: deque[_Past] = deque()

    def note_bad(self, line: dict[str, Any]) -> None:
        first = self.first_bad  # what comes from a device is known later, and may have been earlier
        if first is None or (line["step"], line["seq"]) < (first["step"], first["seq"]):
            self.first_bad = line

    def step_ended(self, seen: list[Seen], trace: StepTrace) -> None:
        """Add to `trace` the lines of `seen`, or of earlier steps'."""
        rows = self._rows.seal()
        if seen:
            self._waiting.append(_Past(trace.step, seen, rows))
        until = time.monotonic() + _LAST_WAIT_S if trace.is_last else 0.0
        while self._waiting and self._has_arrived(self._waiting[0].rows, until):
            self._write(self._waiting.popleft(), trace)
        if trace.is_last:
            for past in self._waiting:
                for each in past.seen:
                    self._pass_over(each.reading.brick, "never arrived from the device")
            self._waiting.clear()

    def _has_arrived(self, rows: SealedStats | None, until: float) -> bool:
        """Whether a step can be written; the oldest of several is waited for, however long it takes."""
        while rows is not None and not rows.is_ready():
            if len(self._waiting) > _MOST_WAITING:
                return not self._rows.is_capturing
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True

    def _write(self, past: _Past, trace: StepTrace) -> None:
        arrived = past.rows.stats() if past.rows is not None else []
        for seq, reading, row, is_sampled in past.seen:
            known = reading if row is None else reading._replace(stats=arrived[row])
            if not (is_sampled or known.is_bad):
                self.clean += 1
                continue
            line = known.line(past.step, seq)
            if known.is_bad:
                trace.bad_steps.add(past.step)
                if row is not None:
                    self.note_bad(line)
            trace.stats.append(line)
            self.written += 1
