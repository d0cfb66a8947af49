"""The rules of the collect: numerics block that its schema cannot say."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from aorta_collectors.numerics.config import Config

#: What sends spans on.
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_GRPC_PORT = 4317
# What is of no use while bricks are not timed.
_OF_BRICKS = ("cv_threshold", "efficiency_threshold", "rate_limit")


def without_effect(config: Config, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Options that cannot have the effect that they are given for, and why.

    Args:
        given: Names of those that somebody has set, rather than being as by default.
    """
    if config.on_bad == "stop" and not config.reads_layers:
        yield "on_bad", f"stop needs the statistics of layers: set trace: layer or payload, not {config.trace}"
    if "stats_every" in given and not config.reads_layers:
        yield "stats_every", f"has no effect without trace: layer or payload; trace is {config.trace}"
    if "payload_max_bytes" in given and not config.keeps_payload:
        yield "payload_max_bytes", f"has no effect without trace: payload; trace is {config.trace}"
    if "escalate" in given and config.escalate == "on" and not config.profiles:
        yield "escalate", "on needs profile: deferred or immediate; bricks that are not timed cannot be escalated"
    for name in _OF_BRICKS:
        if name in given and not config.escalates:
            why = "profile is off" if not config.profiles else "escalate is off"
            yield name, f"has no effect while {why}; it decides which timed bricks are escalated"
    if config.steps and not config.traces:
        yield "steps", "has no effect with trace: none; it says what is traced"
    if config.otlp_endpoint:
        yield from _faults_of_endpoint(config)


def _faults_of_endpoint(config: Config) -> Iterator[tuple[str, str]]:
    name = "otlp_endpoint"
    if not config.traces:
        yield name, "has no effect with trace: none; spans are what it is sent"
    try:
        port = urlsplit(config.otlp_endpoint).port
    except ValueError as error:
        yield name, f"is no address: {error}"
    else:
        if port == _GRPC_PORT:
            yield name, f"port {_GRPC_PORT} is that of OTLP over gRPC; spans go over HTTP, whose port is 4318"
    if not can_send():
        yield name, 'needs opentelemetry: pip install "aorta-collectors[otlp]"'


def can_send() -> bool:
    """Whether what sends spans on is installed."""
    try:
        return find_spec(EXPORTER) is not None
    except ModuleNotFoundError:
        return False
