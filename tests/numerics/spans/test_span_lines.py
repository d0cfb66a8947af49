"""Lines of spans fit their schema, whatever a program gives as attributes."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.numerics.spans.span import KINDS, Span
from aorta_collectors.numerics.spans.span_lines import SpanLines
from aorta_collectors.numerics.spans.trace_context import TraceContext
from aorta_collectors.schema_check import first_error

CONTEXT = TraceContext.of({}, "run")
LINES = SpanLines(CONTEXT, rank=1, pid=77)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def span(**changes: Any) -> Span:
    fields: dict[str, Any] = {
        "name": "EMBED",
        "kind": "phase",
        "layer": "wte",
        "direction": "forward",
        "step": 3,
        "start_ns": 1_000,
        "end_ns": 5_000,
        "overhead_ns": 500,
        "span_id": 9,
        "parent_id": 4,
        "thread": 12,
        "lamport": 40,
    }
    return Span(**{**fields, **changes})


@given(st.sampled_from(KINDS), st.dictionaries(st.text(), values, max_size=4))
def test_a_line_fits_its_schema(kind: str, attributes: dict[str, Any]) -> None:
    (line,) = LINES.lines([span(kind=kind, attributes=attributes)])
    assert first_error("numerics.span", json.loads(line)) is None
    line.encode("utf-8")


def test_identifiers_and_times() -> None:
    now = time.perf_counter_ns()
    plain = LINES.plain(span(start_ns=now, end_ns=now + 7))
    assert abs(plain["start_ns"] - time.time_ns()) < 1e9
    assert plain["duration_ns"] == 7
    assert (plain["span_id"], plain["parent_span_id"]) == (CONTEXT.span_id(9), CONTEXT.span_id(4))
    assert (plain["rank"], plain["pid"], plain["thread"], plain["lamport"]) == (1, 77, 12, 40)


def test_the_process_is_a_part_of_what_started_it() -> None:
    started = TraceContext.of({"TRACEPARENT": f"00-{'1' * 32}-{'2' * 16}-01"}, None)
    plain = SpanLines(started, 0, 1).plain(span(kind="process", span_id=0, parent_id=0))
    assert plain["parent_span_id"] == "2" * 16
    assert LINES.plain(span(span_id=0, parent_id=0))["parent_span_id"] is None


def test_what_cannot_describe_itself_is_told_by_its_type() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    assert LINES.plain(span(attributes={"odd": Odd(), "long": "x" * 9999}))["attributes"] == {
        "odd": "Odd",
        "long": "x" * 500,
    }
