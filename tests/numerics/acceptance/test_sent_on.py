"""Spans of a whole program reach an OTLP/HTTP receiver, and a receiver that is not there changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.numerics.acceptance.running import armed, bare
from tests.numerics.spans.test_otlp import Receiver

#: Starts a program of its own kind in the end, which inherits the trace.
PROGRAM = """
import os
import subprocess
import sys
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for step in range(4):
    model.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    print(step, loss.item().hex(), flush=True)
if "CHILD" not in os.environ:
    subprocess.run([sys.executable, __file__], env={**os.environ, "CHILD": "1"}, check=False)
sys.exit(3)
"""
GIVEN = f"00-{'ab' * 16}-{'cd' * 8}-01"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture(scope="module")
def sent(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The directory of a program whose spans have been sent on."""
    env = {"TRACEPARENT": GIVEN, "TRACESTATE": "other=1"}
    ran, left = armed(tmp_path_factory.mktemp("sent"), PROGRAM, "--otlp-endpoint", receiver.endpoint, **env)
    assert ran.code == 3
    return left


def identity(span: Any) -> tuple[str, str, str]:
    return span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()


def test_every_span_arrives_as_it_was_written(sent: Any, receiver: Receiver) -> None:
    stems = [path.stem.removeprefix("spans_") for path in sent.directory.glob("spans_*.jsonl")]
    assert len(stems) == 2
    lines = [line for stem in stems for line in type(sent)(sent.directory, stem).lines("spans")]
    arrived = {span.span_id.hex(): span for span in receiver.spans}
    assert set(arrived) == {line["span_id"] for line in lines}
    for line in lines:
        span = arrived[line["span_id"]]
        assert identity(span) == (line["trace_id"], line["span_id"], line["parent_span_id"] or "")
        assert span.name == f"{line['name']} {line['layer']}".rstrip()
        assert span.start_time_unix_nano == line["start_ns"]
        assert span.end_time_unix_nano - span.start_time_unix_nano == line["duration_ns"]
    told = sent.summary["otlp"]
    assert (told["dropped"], told["error"]) == (0, None)
    assert told["sent"] == len(sent.lines("spans"))


def test_one_trace_goes_through_the_processes(sent: Any) -> None:
    (child,) = (path.stem.removeprefix("spans_") for path in sent.directory.glob("spans_rank0_p*.jsonl"))
    first, second = sent, type(sent)(sent.directory, child)
    assert {line["trace_id"] for left in (first, second) for line in left.lines("spans")} == {"ab" * 16}
    outer, inner = (next(s for s in left.lines("spans") if s["kind"] == "process") for left in (first, second))
    assert outer["parent_span_id"] == "cd" * 8
    assert inner["parent_span_id"] == outer["span_id"]
    assert inner["lamport"] > outer["lamport"]
    assert outer["start_ns"] < inner["start_ns"]


def test_a_receiver_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    plain = bare(tmp_path / "bare", PROGRAM, CHILD="1")
    options = ["--otlp-endpoint", "http://127.0.0.1:9", "--step-metrics", "off"]
    ran, left = armed(tmp_path / "armed", PROGRAM, *options, CHILD="1")
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.code == 3
    told = left.summary["otlp"]
    assert told["sent"] == 0
    assert told["dropped"] == len(left.lines("spans"))
    assert told["error"]
    said = [line for line in ran.err.splitlines() if "numerics:" not in line]
    assert said == []
