"""A sink that keeps what it is given, and an observer armed around a block of code."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from aorta_collectors.observe.observation import Observation, RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.watch import CHANNELS, WatchGroup

#: Every channel of every module, the root included: the empty string is in each path.
EVERYTHING = WatchGroup(names=("",), channels=CHANNELS)
LINEARS = WatchGroup(types=("Linear",), channels=CHANNELS)


class Seen:
    """What an observer reported, by step."""

    def __init__(self) -> None:
        self.roots: list[RootInfo] = []
        self.entered_steps: list[int] = []
        self.traces: list[StepTrace] = []
        self.by_step: dict[int, list[Observation]] = {}

    def attached(self, root: RootInfo) -> None:
        self.roots.append(root)

    def ranges_wanted(self, step: int) -> bool:
        return True

    def entered(self, step: int) -> None:
        self.entered_steps.append(step)

    def forked(self) -> None:
        raise AssertionError("no test of these forks")

    def observed(self, trace: StepTrace) -> None:
        self.traces.append(trace)
        self.by_step.setdefault(trace.step, []).extend(trace.observations)

    def places(self, step: int) -> list[tuple[str, str]]:
        """(layer, role) in the order in which they were seen."""
        return [(seen.site.layer, seen.site.role) for seen in self.by_step.get(step, [])]

    def only(self, step: int, layer: str, role: str) -> list[Observation]:
        return [seen for seen in self.by_step[step] if (seen.site.layer, seen.site.role) == (layer, role)]


@contextlib.contextmanager
def watching(*groups: WatchGroup, **options: Any) -> Iterator[tuple[Observer, Seen]]:
    """An armed observer, disarmed (and so drained) when the block ends. Watches Linear layers by default."""
    seen = Seen()
    observer = Observer(Request(groups or (LINEARS,), **options), seen)
    observer.arm()
    try:
        yield observer, seen
    finally:
        observer.disarm()


@contextlib.contextmanager
def one_process_group() -> Iterator[None]:
    """A gloo process group of this process alone, without any port or file."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        # It must outlive the test's models: torch would join gloo's threads while it frees the last holder, such as
        # DistributedDataParallel's reducer, and hold the GIL, for which one of these threads may be waiting.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
        dist.destroy_process_group()


def train(model: nn.Module, steps: int = 2, width: int = 4) -> None:
    """Some steps of plain SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, width)).square().mean().backward()
        optimizer.step()


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
