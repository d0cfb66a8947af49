"""What Python's objects take: the line that takes it is named, where the application traces, and ours is left out."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta_collectors.memory.lifetimes import largest
from aorta_collectors.memory.python_heap import LEAST, PythonHeap

MIB = 1 << 20


@pytest.fixture(params=[1, 10])
def _tracing(request: pytest.FixtureRequest) -> Iterator[None]:
    tracemalloc.start(request.param)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_tracing")
def test_what_grew_is_told_by_the_line_that_took_it() -> None:
    heap = PythonHeap()
    assert heap.read() is None
    kept = [bytearray(8 * MIB)]  # planted
    change = heap.read()
    assert change is not None
    assert 8 * MIB <= change.total < 9 * MIB
    (stack, size), *_ = largest(change.net, 3)
    assert (stack[0].file, stack[0].line) == (__file__, _line_of("# planted"))
    assert (size.bytes >= 8 * MIB, stack[0].function) == (True, None)
    kept.clear()
    change = heap.read()
    assert change is not None
    assert abs(change.total + 8 * MIB) < 10_000
    assert abs(change.net[stack].bytes + 8 * MIB) < 1000


@pytest.mark.usefixtures("_tracing")
def test_looking_is_not_part_of_what_is_seen() -> None:
    heap = PythonHeap()
    kept: list[object] = []
    source = "\n".join(f"kept.append(bytearray({100 + number}))" for number in range(500))
    exec(compile(source, "/x/generated.py", "exec"), {"kept": kept})
    heap.read()
    before = heap.bytes
    for number in range(1, 4):
        kept.append(bytearray(2 * LEAST))
        change = heap.read()
        assert change is not None
        assert abs(change.total - 2 * LEAST) < 10_000
        assert abs(heap.bytes - before - number * 2 * LEAST) < 20_000


@pytest.mark.usefixtures("_tracing")
def test_a_small_change_is_told_as_a_total_and_is_part_of_the_next_look() -> None:
    heap = PythonHeap()
    heap.read()
    before = heap.bytes
    kept = [bytearray(LEAST // 2)]
    assert heap.read() is None
    assert abs(heap.bytes - before - LEAST // 2) < 10_000
    kept.append(bytearray(LEAST))
    change = heap.read()
    assert change is not None
    assert abs(change.total - LEAST * 3 // 2) < 10_000
    assert len(kept) == 2


@pytest.mark.usefixtures("_tracing")
def test_what_is_traced_anew_is_compared_with_nothing() -> None:
    heap = PythonHeap()
    heap.read()
    heap.forget()
    assert heap.read() is None


def _line_of(marker: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(marker))
