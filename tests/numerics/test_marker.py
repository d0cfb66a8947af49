"""The program's own steps."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator

import pytest
from torch import nn

from aorta_collectors.numerics import step
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.marker import Marks
from tests.numerics.driving import timeline
from tests.numerics.forked import in_a_fork
from tests.support import PYTHON, ROOT


@pytest.fixture
def spans() -> Iterator[Timeline]:
    armed = timeline()
    marks = Marks(armed, pytest.fail)
    marks.start()
    yield armed
    marks.stop()


def test_a_named_step_is_a_phase_and_any_other_the_programs_own(spans: Timeline) -> None:
    with step("sample", top_k=4, ratio=float("nan"), of=nn.ReLU()), step("RERANK"):
        pass
    inner, outer = spans.take()
    assert (outer.name, outer.kind, outer.attributes) == (
        "SAMPLE",
        "phase",
        {"top_k": 4, "ratio": "nan", "of": "ReLU()"},
    )
    assert (inner.name, inner.kind, inner.attributes, inner.parent_id) == ("RERANK", "user", {}, outer.span_id)


def test_a_decorated_function_is_one_span_a_call(spans: Timeline) -> None:
    @step("COUNT", beam=4)
    def count(number: int) -> int:
        return number and count(number - 1) + 1

    assert count(2) == 2
    found = spans.take()
    assert [(span.name, span.attributes) for span in found] == [("COUNT", {"beam": 4})] * 3
    assert [span.parent_id for span in found[:2]] == [span.span_id for span in found[1:]]


def test_an_exception_passes_through(spans: Timeline) -> None:
    with pytest.raises(KeyError), step("RERANK"):
        raise KeyError
    assert [span.name for span in spans.take()] == ["RERANK"]


def test_one_marker_may_be_used_again_inside_of_itself(spans: Timeline) -> None:
    marker = step("OUTER")
    with marker, marker:
        pass
    inner, outer = spans.take()
    assert inner.parent_id == outer.span_id


def test_it_knows_its_thread(spans: Timeline) -> None:
    def work() -> None:
        with step("WORK"):
            pass

    with step("WAIT"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    worked, waited = spans.take()
    assert worked.thread != waited.thread
    assert worked.parent_id != waited.span_id


def test_coroutines_of_one_thread_that_take_turns(spans: Timeline) -> None:
    async def serve(name: str, seconds: float) -> None:
        with step(name):
            await asyncio.sleep(seconds)

    async def main() -> None:
        with step("all"):
            await asyncio.gather(serve("short", 0.01), serve("middle", 0.05), serve("long", 0.1))

    asyncio.run(main())
    found = {span.name: span for span in spans.take()}
    assert list(found) == ["short", "middle", "long", "all"]
    for name, seconds in (("short", 0.01), ("middle", 0.05), ("long", 0.1), ("all", 0.1)):
        assert found[name].own_ns >= 0.9e9 * seconds
        assert found[name].parent_id == (0 if name == "all" else found["all"].span_id)


def test_where_nothing_is_armed_nothing_happens(spans: Timeline) -> None:
    marks = Marks(timeline(), pytest.fail)
    marks.start()
    marks.stop()
    nn.BatchNorm1d(2)  # registers buffers

    def forked() -> None:  # nor in a fork of the process that is observed
        with step("FORKED"):
            pass
        assert spans.take() == []

    assert in_a_fork(forked)[1] == 0
    assert spans.take() == []


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 201, 3, None, "\x1b[31m"])
def test_a_name_is_printable(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 printable characters"):
        step(name)


def test_it_does_not_load_torch() -> None:
    code = (
        "import sys\nfrom aorta_collectors.numerics import step\n"
        "with step('A'): pass\nprint(step('B')(len)('abc'), 'torch' in sys.modules)"
    )
    done = subprocess.run([PYTHON, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "3 False\n"
