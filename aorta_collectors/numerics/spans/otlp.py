"""Sending spans to an OTLP/HTTP receiver by opentelemetry-sdk, in a thread of its own: a step never waits for it.

Spans wait in a queue of bounded length. Where the receiver is too slow, or not there, the oldest are dropped and
counted. OTLP: https://opentelemetry.io/docs/specs/otlp/.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from aorta_collectors.numerics.spans.span import Span
from aorta_collectors.numerics.spans.span_lines import SpanLines

_QUEUE = 8192
_BATCH = 512
_PAUSE_S = 1.0
_TIMEOUT_S = 5.0
_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk", "urllib3.connectionpool")


def traces_url(endpoint: str) -> str:
    """The address that spans are posted to: the endpoint with /v1/traces, unless it has a path of its own."""
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else endpoint


class OtlpSender:
    """Sends spans of one process.

    Args:
        endpoint: As given, such as http://localhost:4318.
        lines: Tells the spans' identifiers and times of day.
        resource: What the receiver is told of the process, such as its rank.
    """

    def __init__(self, endpoint: str, lines: SpanLines, resource: Mapping[str, str | int]) -> None:
        self.endpoint = traces_url(endpoint)
        self._lines = lines
        self._resource = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or _program(), **resource}
        self._waiting: deque[Span] = deque()
        self._lock = threading.Lock()
        self._more = threading.Event()
        self._ends = False
        self._pid = os.getpid()
        self._queued = self._sent = self._dropped = 0
        self._closed = False
        self._error: str | None = None
        self._exporter: Any = None
        self._thread: threading.Thread | None = None

    def send(self, spans: Sequence[Span]) -> None:
        """Queue spans; returns at once."""
        if self._ends or not spans or os.getpid() != self._pid:
            return
        with self._lock:
            self._waiting.extend(spans)
            self._queued += len(spans)
            while len(self._waiting) > _QUEUE:
                self._waiting.popleft()
                self._dropped += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="aorta-collectors-otlp", daemon=True)
            self._thread.start()
        if len(self._waiting) >= _BATCH:
            self._more.set()

    def close(self) -> None:
        """Send what waits, for a few seconds at most; the rest is dropped."""
        if os.getpid() != self._pid:
            return
        self._ends = True
        self._more.set()
        thread = self._thread
        if thread is not None:
            thread.join(_TIMEOUT_S)
            if thread.is_alive() and self._exporter is not None:
                self._exporter.shutdown()  # ends its waiting between attempts
                thread.join(1.0)
        self._closed = True

    def fields(self) -> dict[str, Any]:
        """For the summary. Once closed, whatever has not arrived is dropped, what is on its way included."""
        sent = self._sent
        dropped = self._queued - sent if self._closed else self._dropped
        return {"endpoint": self.endpoint, "sent": sent, "dropped": dropped, "error": self._error}

    def _run(self) -> None:
        mine = threading.get_ident()

        def not_ours(record: logging.LogRecord) -> bool:
            return record.thread != mine

        # A receiver that is not there must not fill the program's own log.
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(not_ours)
        try:
            self._deliver()
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"[:500]
        finally:
            for name in _LOGGERS:
                logging.getLogger(name).removeFilter(not_ours)

    def _deliver(self) -> None:
        # Imported here, since that takes longer than a step may wait.
        from opentelemetry.context import attach, set_value
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult

        attach(set_value("suppress_instrumentation", True))  # a program that traces its requests must not see ours
        resource = Resource(self._resource)
        exporter: Any = OTLPSpanExporter(endpoint=self.endpoint, timeout=_TIMEOUT_S)
        self._exporter = exporter
        try:
            while True:
                last = self._ends
                if not last:
                    self._more.wait(_PAUSE_S)
                    self._more.clear()
                while batch := self._take():
                    result = exporter.export([self._readable(span, resource) for span in batch])
                    if result is SpanExportResult.SUCCESS:
                        self._sent += len(batch)
                    else:
                        self._dropped += len(batch)
                        self._error = f"{self.endpoint} did not take {len(batch)} span(s)"
                if last:
                    return
        finally:
            exporter.shutdown()

    def _take(self) -> list[Span]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]

    def _readable(self, span: Span, resource: Any) -> Any:
        """A span as opentelemetry-sdk exports it."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

        plain = self._lines.plain(span)
        flags = TraceFlags(TraceFlags.SAMPLED)

        def context(span_id: str, is_remote: bool = False) -> SpanContext:
            return SpanContext(int(plain["trace_id"], 16), int(span_id, 16), is_remote, flags)

        parent = plain["parent_span_id"]
        attributes = {
            f"aorta.{key}": plain[key] for key in ("kind", "layer", "direction", "step", "lamport", "overhead_ns")
        }
        own = {key: value for key, value in plain["attributes"].items() if isinstance(value, (bool, int, float, str))}
        return ReadableSpan(
            name=f"{span.name} {span.layer}".rstrip(),
            context=context(plain["span_id"]),
            parent=context(parent, is_remote=span.span_id == 0) if parent is not None else None,
            resource=resource,
            attributes={**own, **attributes, "thread.id": span.thread},
            kind=SpanKind.INTERNAL,
            start_time=plain["start_ns"],
            end_time=plain["start_ns"] + plain["duration_ns"],
        )


def _program() -> str:
    """What the service is called: the program's file, as OTEL_SERVICE_NAME is not set."""
    return os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
