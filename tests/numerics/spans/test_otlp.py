"""Spans reach a real OTLP/HTTP receiver; one that is slow or absent holds nobody up."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from aorta_collectors.numerics.spans.otlp import OtlpSender, traces_url
from aorta_collectors.numerics.spans.span_lines import SpanLines
from aorta_collectors.numerics.spans.trace_context import TraceContext
from tests.numerics.spans.test_span_lines import span


class Receiver:
    """Takes spans as a collector does, over HTTP."""

    def __init__(self, status: int = 200, wait_s: float = 0.0) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                time.sleep(wait_s)
                receiver.paths.append(self.path)
                if status == 200:
                    receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def spans(self) -> list[Any]:
        return [
            found
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for found in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


CONTEXT = TraceContext.of({"TRACEPARENT": f"00-{'1' * 32}-{'2' * 16}-01"}, None)


def sender(endpoint: str) -> OtlpSender:
    return OtlpSender(endpoint, SpanLines(CONTEXT, 1, 77), {"aorta.rank": 1})


def test_all_arrives_as_it_was(receiver: Receiver) -> None:
    sending = sender(receiver.endpoint)
    sending.send([span(span_id=0, parent_id=0, kind="process", name="PROCESS", layer="")])
    sending.send([span(span_id=number, attributes={"tokens": 5, "odd": [1]}) for number in range(1, 1001)])
    sending.close()
    assert sending.fields() == {"endpoint": f"{receiver.endpoint}/v1/traces", "sent": 1001, "dropped": 0, "error": None}
    assert set(receiver.paths) == {"/v1/traces"}
    first, *others = receiver.spans
    assert (first.name, first.trace_id.hex(), first.parent_span_id.hex()) == ("PROCESS", "1" * 32, "2" * 16)
    assert [found.span_id.hex() for found in others] == [CONTEXT.span_id(number) for number in range(1, 1001)]
    one = others[0]
    attributes = {entry.key: entry.value for entry in one.attributes}
    assert (one.name, one.parent_span_id.hex()) == ("EMBED wte", CONTEXT.span_id(4))
    assert one.end_time_unix_nano - one.start_time_unix_nano == 4_000
    assert attributes["tokens"].int_value == 5
    assert attributes["aorta.step"].int_value == 3
    assert attributes["aorta.lamport"].int_value == 40
    resource = {entry.key: entry.value for entry in receiver.requests[0].resource_spans[0].resource.attributes}
    assert resource["aorta.rank"].int_value == 1
    assert resource["service.name"].string_value


def test_sending_goes_on_while_the_program_does(receiver: Receiver) -> None:
    sending = sender(receiver.endpoint)
    sending.send([span()])
    deadline = time.monotonic() + 30
    while not receiver.spans and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(receiver.spans) == 1
    sending.close()


def test_a_receiver_that_is_not_there_costs_no_word_and_no_wait(capfd: pytest.CaptureFixture[str]) -> None:
    sending = sender("http://127.0.0.1:9")
    sending.send([span()] * 20)
    sending.close()
    fields = sending.fields()
    assert (fields["sent"], fields["dropped"]) == (0, 20)
    assert fields["error"]
    assert capfd.readouterr().err == ""


def test_what_a_receiver_refuses_is_counted() -> None:
    refusing = Receiver(status=400)
    sending = sender(refusing.endpoint)
    sending.send([span()] * 5)
    sending.close()
    refusing.close()
    assert (sending.fields()["sent"], sending.fields()["dropped"]) == (0, 5)


def test_a_slow_receiver_lets_the_oldest_go() -> None:
    slow = Receiver(wait_s=1.0)
    sending = sender(slow.endpoint)
    for _ in range(40):
        sending.send([span()] * 500)
    sending.close()
    slow.close()
    fields = sending.fields()
    assert fields["dropped"] > 0
    assert fields["sent"] + fields["dropped"] == 20_000


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
    ],
)
def test_the_path_of_an_endpoint(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url
