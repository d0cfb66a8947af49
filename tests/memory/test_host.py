"""The host's numbers: what the kernel says, in bytes, also where the program has closed the file."""

from __future__ import annotations

import mmap
import os
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta_collectors.memory.host import FIELDS, HostMemory

MIB = 1 << 20


@pytest.fixture
def host() -> Iterator[HostMemory]:
    memory = HostMemory()
    memory.open()
    yield memory
    memory.close()


def test_each_number_is_that_of_the_kernel(host: HostMemory) -> None:
    told = host.read()
    status = Path("/proc/self/status").read_text()
    for name, field in FIELDS.items():
        (kibibytes,) = re.findall(rf"^{name.decode()}:\s+(\d+) kB$", status, re.MULTILINE)
        assert abs(told[field] - int(kibibytes) * 1024) < MIB
    assert told["rss"] > told["anonymous"] > 0
    assert told["peak_rss"] >= told["rss"]
    assert host.untold == []


@pytest.mark.parametrize(("flags", "field"), [(mmap.MAP_PRIVATE, "anonymous"), (mmap.MAP_SHARED, "shared")])
def test_memory_of_each_kind_is_told_as_that_kind_while_it_is_held(host: HostMemory, flags: int, field: str) -> None:
    before = host.read()
    with mmap.mmap(-1, 16 * MIB, flags=flags | mmap.MAP_ANONYMOUS) as mapped:
        for page in range(0, 16 * MIB, mmap.PAGESIZE):
            mapped[page] = 1
        during = host.read()
    after = host.read()
    other = {"anonymous": "shared", "shared": "anonymous"}[field]
    assert abs(during[field] - before[field] - 16 * MIB) < MIB
    assert abs(during[other] - before[other]) < MIB
    assert abs(after[field] - before[field]) < MIB
    # The kernel keeps it by counters that are not brought up to date at every page.
    assert after["peak_rss"] > during["rss"] - MIB


def test_python_s_own_bytes_are_told_where_the_application_traces_them(host: HostMemory) -> None:
    assert host.read()["python"] is None
    tracemalloc.start()
    try:
        kept = bytearray(MIB)
        assert host.read()["python"] >= len(kept)
    finally:
        tracemalloc.stop()
    assert host.read()["python"] is None


def test_a_program_that_closes_all_descriptors_is_still_read(host: HostMemory) -> None:
    before = host.read()
    assert host._file is not None
    os.close(host._file.fd())
    assert abs(host.read()["rss"] - before["rss"]) < 16 * MIB
