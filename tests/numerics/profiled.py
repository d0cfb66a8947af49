"""An engine armed around a block of code, with the parts that a test names."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence

import torch

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.profile.roofline import Roofline
from aorta_collectors.numerics.profile.roofline_measure import Conditions, measured


class Steps:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.traces: list[StepTrace] = []

    def attached(self, label: str) -> None:
        pass

    def entered(self, step: int) -> None:
        pass

    def stepped(self, trace: StepTrace) -> None:
        self.traces.append(trace)

    def forked(self) -> None:
        raise AssertionError("no test of these forks")

    @property
    def counted(self) -> list[int]:
        return [trace.step for trace in self.traces if trace.is_counted]


@contextlib.contextmanager
def profiled(config: Config, parts: Sequence[Part], timeline: Timeline) -> Iterator[Steps]:
    """Disarmed when the block ends; no hook of ours may have raised."""
    # Operations are not counted where a compiler was at work in the process: other tests may have had one.
    if (dynamo := sys.modules.get("torch._dynamo.utils")) is not None:
        dynamo.counters.clear()
    steps = Steps()
    engine = Engine(config, parts, timeline, steps)
    engine.arm()
    try:
        yield steps
    finally:
        engine.disarm()
    assert engine.errors == 0, engine.first_error


@functools.lru_cache(maxsize=1)
def roofline() -> Roofline:
    """Of this machine, measured once for all tests of a process."""
    conditions = Conditions.of(torch.device("cpu"))
    fields = measured(conditions, ["float32"], None)
    assert fields is not None
    return Roofline(**fields)
