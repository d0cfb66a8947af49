"""A program that trains models with a planted load in one module each, and tells as JSON how it was escalated.

Arguments: "source:load" each. For each there is a line {"source", "load", "lines"}.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.escalation.escalation import Escalation
from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.spans.lamport import LamportClock

MEGABYTE = 1 << 20
_MOST_STEPS = 200
_BUSY_S = 0.012
_PAGEMAP_SCAN = 0xC0606610  # Linux 6.7: a walk over page tables, which takes its time


def read_load() -> Callable[[], None]:
    file, into = os.open("/dev/zero", os.O_RDONLY), bytearray(MEGABYTE)
    return lambda: os.readv(file, [into]) and None


def write_load() -> Callable[[], None]:
    file, what = os.memfd_create("load"), bytes(MEGABYTE)
    return lambda: os.pwrite(file, what, 0) and None


def mmap_load() -> Callable[[], None]:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    return lambda: mmap.mmap(-1, 4 * MEGABYTE, flags=flags).close()


def futex_load() -> Callable[[], None]:
    contended = threading.Lock()

    def hold() -> None:
        while True:
            with contended:
                time.sleep(0.003)

    threading.Thread(target=hold, daemon=True).start()

    def fight() -> None:
        with contended:
            pass

    return fight


def ioctl_load() -> Callable[[], None] | None:
    walked = mmap.mmap(-1, 64 * MEGABYTE)
    walked.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(0, len(walked), mmap.PAGESIZE):
        walked[page] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(walked))
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    regions = (ctypes.c_uint64 * 3)()
    # size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any of: present, returned
    argument = (ctypes.c_uint64 * 12)(96, 0, start, start + len(walked), 0, ctypes.addressof(regions), 1, 0, 0, 0, 8, 8)
    try:
        fcntl.ioctl(pagemap, _PAGEMAP_SCAN, argument)
    except OSError:
        return None
    return lambda kept=(walked, regions): fcntl.ioctl(pagemap, _PAGEMAP_SCAN, argument) and None


def compute_load() -> Callable[[], None]:
    return lambda: sum(range(1000)) and None


LOADS = {
    "read": read_load,
    "write": write_load,
    "mmap": mmap_load,
    "futex": futex_load,
    "ioctl": ioctl_load,
    "compute": compute_load,
}


class Load(nn.Module):
    """Does the same again and again for a time that varies."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        until = time.perf_counter() + _BUSY_S * (1 + self.calls % 2)
        while time.perf_counter() < until:
            self.work()
        return x


class Steps:
    """What the engine hands on."""

    def __init__(self) -> None:
        self.traces: list[StepTrace] = []

    def attached(self, label: str) -> None: ...

    def entered(self, step: int) -> None: ...

    def stepped(self, trace: StepTrace) -> None:
        self.traces.append(trace)

    def forked(self) -> None: ...


def escalated(work: Callable[[], None], source: str) -> list[dict[str, Any]]:
    """The lines of the first look that comes at the planted load."""
    model = nn.ModuleDict({"embed": nn.Linear(16, 16), "load": Load(work), "head": nn.Linear(16, 1)})
    chain = nn.Sequential(*model.values())
    optimizer = torch.optim.SGD(chain.parameters(), lr=0.01)
    config = Config(profile="deferred")
    timeline, steps = Timeline(config, LamportClock(0)), Steps()
    table = BrickTable(config)
    escalation = Escalation(config, table, timeline, Helper((source,)))
    engine = Engine(config, [escalation, table], timeline, steps)
    engine.arm()
    lines: list[dict[str, Any]] = []
    for _ in range(_MOST_STEPS):
        optimizer.zero_grad()
        chain(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        lines = [line for trace in steps.traces for line in trace.escalations]
        if any(line["layer"] == "1" for line in lines):
            break
    engine.disarm()
    assert engine.errors == 0, engine.first_error
    return [line for line in lines if line["layer"] == "1"]


def main() -> None:
    torch.set_num_threads(1)
    for source, _, load in (argument.partition(":") for argument in sys.argv[1:]):
        work = LOADS[load]()
        lines = escalated(work, source) if work is not None else None
        print(json.dumps({"source": source, "load": load, "lines": lines}))


if __name__ == "__main__":
    main()
