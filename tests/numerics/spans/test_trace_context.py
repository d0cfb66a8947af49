"""W3C Trace Context: what is taken from the environment, and what children find there."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.numerics.spans.trace_context import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEX = "0123456789abcdef"


def hexadecimal(digits: int) -> st.SearchStrategy[str]:
    return st.text(HEX, min_size=digits, max_size=digits).filter(lambda text: int(text, 16) != 0)


class TestTaken:
    @given(hexadecimal(32), hexadecimal(16), st.text(HEX, min_size=2, max_size=2))
    def test_a_trace_that_is_going_on(self, trace: str, span: str, flags: str) -> None:
        context = TraceContext.of({"TRACEPARENT": f"00-{trace}-{span}-{flags}"}, "run")
        assert (context.trace_id, context.parent_id, context.lamport) == (trace, span, 0)

    @pytest.mark.parametrize(
        "malformed",
        [
            "",
            f"00-{TRACE}-{SPAN}",
            f"00-{TRACE.upper()}-{SPAN}-01",
            f"00-{'0' * 32}-{SPAN}-01",
            f"00-{TRACE}-{'0' * 16}-01",
            f"ff-{TRACE}-{SPAN}-01",
            f"00-{TRACE}-{SPAN}-01-more",
            f"00-{TRACE}-{SPAN}-1",
            f" 00-{TRACE}-{SPAN}-01",
        ],
    )
    def test_what_is_malformed_counts_for_nothing(self, malformed: str) -> None:
        context = TraceContext.of({"TRACEPARENT": malformed, "TRACESTATE": "aorta=7"}, "run")
        assert context == TraceContext.of({}, "run")
        assert context.parent_id is None

    def test_a_later_version_may_say_more(self) -> None:
        context = TraceContext.of({"TRACEPARENT": f"01-{TRACE}-{SPAN}-01-more"}, "run")
        assert (context.trace_id, context.parent_id) == (TRACE, SPAN)

    def test_ranks_of_one_run_come_to_one_trace_and_others_to_another(self) -> None:
        ids = {TraceContext.of({}, run).trace_id for run in ("one", "one", "two")}
        assert len(ids) == 2
        assert all(re.fullmatch("[0-9a-f]{32}", found) for found in ids)

    def test_without_a_run_each_process_is_a_trace(self) -> None:
        assert TraceContext.of({}, None).trace_id != TraceContext.of({}, None).trace_id


class TestHandedDown:
    @given(st.integers(0, 10**15), st.lists(st.sampled_from(["vendor=1", "other=x:y", "third=t"]), unique=True))
    def test_a_child_knows_its_parent_and_its_clock(self, clock: int, state: list[str]) -> None:
        parent = TraceContext.of({"TRACEPARENT": f"00-{TRACE}-{SPAN}-01", "TRACESTATE": ",".join(state)}, None)
        environ: dict[str, str] = {}
        parent.hand_down(environ, clock)
        child = TraceContext.of(environ, "another run")
        assert (child.trace_id, child.parent_id, child.lamport) == (TRACE, parent.span_id(0), clock)
        assert list(child.state) == state
        assert LamportClock(child.lamport).tick() == clock + 1

    def test_it_is_taken_back(self) -> None:
        environ = {"TRACEPARENT": f"00-{TRACE}-{SPAN}-01", "HOME": "/"}
        before = dict(environ)
        context = TraceContext.of(environ, None)
        told = context.hand_down(environ, 3)
        assert environ != before
        context.take_back(environ, told)
        assert environ == before

    def test_unless_somebody_has_put_another_one_there(self) -> None:
        environ: dict[str, str] = {}
        context = TraceContext.of(environ, "run")
        told = context.hand_down(environ, 3)
        environ["TRACEPARENT"] = f"00-{TRACE}-{SPAN}-01"
        context.take_back(environ, told)
        assert environ["TRACEPARENT"] == f"00-{TRACE}-{SPAN}-01"

    def test_a_long_state_stays_within_what_the_standard_allows(self) -> None:
        state = ",".join(f"vendor{number}=1" for number in range(40))
        context = TraceContext.of({"TRACEPARENT": f"00-{TRACE}-{SPAN}-01", "TRACESTATE": state}, None)
        environ: dict[str, str] = {}
        context.hand_down(environ, 1)
        assert len(environ["TRACESTATE"].split(",")) == 32
        assert environ["TRACESTATE"].startswith("aorta=1,vendor0=1,")


def test_spans_of_a_process_have_different_ids_and_so_have_those_of_two_processes() -> None:
    one, other = TraceContext.of({}, "run"), TraceContext.of({}, "run")
    ids = [context.span_id(number) for context in (one, other) for number in range(1000)]
    assert len(set(ids)) == 2000
    assert all(re.fullmatch("[0-9a-f]{16}", found) and int(found, 16) for found in ids)
