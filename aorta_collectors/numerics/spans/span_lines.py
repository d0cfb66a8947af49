"""Spans as lines of spans_<stem>.jsonl (schemas/numerics.span.json)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from aorta_collectors.numerics.spans.encoding import encoded
from aorta_collectors.numerics.spans.span import Span
from aorta_collectors.numerics.spans.trace_context import TraceContext

_DEPTH = 4  # of what a program gives as an attribute
_CHARACTERS = 500


class SpanLines:
    """Makes lines. Times of all spans of a process are told by one clock, set once to the time of day.

    Attributes:
        offset_ns: What is added to time.perf_counter_ns() for nanoseconds since 1970.
    """

    def __init__(self, context: TraceContext, rank: int, pid: int) -> None:
        self._context = context
        self._identity = {"rank": rank, "pid": pid}
        self.offset_ns = time.time_ns() - time.perf_counter_ns()

    def lines(self, spans: Iterable[Span]) -> list[str]:
        return [encoded(self.plain(span)) for span in spans]

    def plain(self, span: Span) -> dict[str, Any]:
        """The fields of a line."""
        context = self._context
        # The span of the process itself has its parent, if any, in the process that started it.
        parent = context.span_id(span.parent_id) if span.span_id else context.parent_id
        return {
            "trace_id": context.trace_id,
            "span_id": context.span_id(span.span_id),
            "parent_span_id": parent,
            "name": span.name,
            "kind": span.kind,
            "layer": span.layer,
            "direction": span.direction,
            "step": span.step,
            "start_ns": max(0, span.start_ns + self.offset_ns),
            "duration_ns": max(0, span.end_ns - span.start_ns),
            "overhead_ns": max(0, span.overhead_ns),
            "lamport": span.lamport,
            **self._identity,
            "thread": span.thread,
            "attributes": plain_attributes(span.attributes),
        }


def plain_attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a program has given, as JSON knows it: numbers, texts, lists and objects of bounded size."""
    return (
        {} if not attributes else {str(name)[:_CHARACTERS]: _plain(value, _DEPTH) for name, value in attributes.items()}
    )


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth and isinstance(value, Mapping):
        return {str(name)[:_CHARACTERS]: _plain(inner, depth - 1) for name, inner in list(value.items())[:_CHARACTERS]}
    if depth and isinstance(value, (list, tuple)):
        return [_plain(inner, depth - 1) for inner in value[:_CHARACTERS]]
    return _text(value)[:_CHARACTERS]


def _text(value: Any) -> str:
    # A lone surrogate cannot be written down, nor can what fails to describe itself.
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:
        return type(value).__name__
