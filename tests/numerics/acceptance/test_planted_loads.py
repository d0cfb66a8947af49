"""A load that is planted in a module is named by the closer look that a whole run takes of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.numerics.acceptance.running import armed

LOADS = ("read", "mmap", "futex")
_ATTEMPTS = 3  # what other processes do on the machine can throw a look out

#: Trains one model for each load; its part `load` does the same again and again, for a time that varies.
PROGRAM = """
import mmap
import os
import sys
import threading
import time
import torch
from torch import nn

torch.set_num_threads(1)
lock = threading.Lock()


def hold():
    while True:
        with lock:
            time.sleep(0.003)


def read(zeros=os.open("/dev/zero", os.O_RDONLY), into=bytearray(1 << 20)):
    os.readv(zeros, [into])


def map_memory():
    mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def wait():
    with lock:
        pass


class Load(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.work, self.calls = work, 0

    def forward(self, x):
        self.calls += 1
        until = time.perf_counter() + 0.012 * (1 + self.calls % 2)
        while time.perf_counter() < until:
            self.work()
        return x


class Net(nn.Module):
    def __init__(self, name, work):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.add_module(name, Load(work))
        self.last = nn.Linear(16, 1)
        self.name = name

    def forward(self, x):
        return self.last(getattr(self, self.name)(self.first(x)))


for name in sys.argv[1:]:
    if name == "futex":
        threading.Thread(target=hold, daemon=True).start()
    model = Net(name, {"read": read, "mmap": map_memory, "futex": wait}[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
"""

Looks = dict[str, list[dict[str, Any]]]


def looks(directory: Path, *loads: str) -> Looks:
    """The closer looks at each load."""
    ran, left = armed(directory, PROGRAM, "--profile", "deferred", program=loads)
    ran.ok()
    assert left.summary["hook_errors"] == 0, left.summary["first_hook_error"]
    assert left.summary["escalations"]["taken"] == len(left.lines("escalations"))
    lines = left.lines("escalations")
    return {load: [line for line in lines if line["layer"].split(".")[-1] == load] for load in loads}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Looks:
    return looks(tmp_path_factory.mktemp("loads"), *LOADS)


@pytest.mark.parametrize("load", LOADS)
def test_a_planted_load_is_named(found: Looks, load: str, tmp_path: Path) -> None:
    lines = found[load]
    for attempt in range(_ATTEMPTS):
        assert lines
        assert lines[0]["reason"] in ("unstable", "inefficient")
        assert lines[0]["brick_us"] >= 11_000
        breakdowns = [line["breakdown"] for line in lines if line["breakdown"] is not None]
        if not breakdowns:
            pytest.skip(f"this machine lets nothing look: {lines[0]['unavailable']}")
        if breakdowns[0]["dominant"] == load:
            break
        lines = looks(tmp_path / str(attempt), load)[load]
    assert breakdowns[0]["dominant"] == load, breakdowns
    parts = breakdowns[0]["step_thread_us"]
    assert parts[load] > sum(parts.values()) / 2
    assert breakdowns[0][f"{load}_us"] >= parts[load] * 0.999
