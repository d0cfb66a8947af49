"""The part with a real engine and a real table: what a look leaves, and what it must not change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import profiler

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.escalation.escalation import Escalation
from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.numerics.spans.span import Span
from tests.numerics.profile.escalation.loads import Steps
from tests.support import PYTHON, ROOT, run


class Restless(nn.Module):
    """Takes 2 ms, or 6."""

    def __init__(self, seconds: float = 0.002) -> None:
        super().__init__()
        self.seconds = seconds
        self.mix = nn.Linear(16, 16)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        time.sleep(self.seconds if self.calls % 2 else 3 * self.seconds)
        return nn.functional.dropout(self.mix(x), 0.5)


class Armed(NamedTuple):
    engine: Engine
    escalation: Escalation
    traces: list[StepTrace]

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [line for trace in self.traces for line in trace.escalations]

    @property
    def kernels(self) -> list[Span]:
        return [span for trace in self.traces for span in trace.spans if span.kind == "kernel"]

    @property
    def looked_at(self) -> list[int]:
        return [trace.step for trace in self.traces if trace.is_counted]


@contextmanager
def _armed(_helper: tuple[str, ...] = ("proc",), **options: Any) -> Iterator[Armed]:
    config = Config(**{"profile": "deferred", **options})
    timeline, steps, table = Timeline(config, LamportClock(0)), Steps(), BrickTable(config)
    escalation = Escalation(config, table, timeline, Helper(_helper))
    engine = Engine(config, [escalation, table], timeline, steps)
    engine.arm()
    try:
        yield Armed(engine, escalation, steps.traces)
    finally:
        engine.disarm()
    assert engine.errors == 0, engine.first_error


def _train(steps: int) -> list[float]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 16), Restless(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(4, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_brick_whose_time_varies_is_looked_at_and_the_loss_stays_the_same() -> None:
    bare = _train(20)
    with _armed() as armed:
        observed = _train(20)
    assert observed == bare
    line = next(line for line in armed.lines if line["layer"] == "1" and line["direction"] == "forward")
    assert line["reason"] == "unstable"
    assert line["value"] > line["threshold"] == 0.15
    names = {row["name"]: row["calls"] for row in line["kernels"]}
    assert names["aten::addmm"] == 1
    assert names["aten::dropout"] == 1
    assert "SgdOptimizer" not in str(names)
    assert [row["self_us"] for row in line["kernels"]] == sorted(
        (row["self_us"] for row in line["kernels"]), reverse=True
    )
    # The program ended before /proc could tell much, which is no reason to tell less.
    assert line["breakdown"]["dominant"] == "other"
    assert line["breakdown"]["steps"] == len(armed.looked_at)
    fields = armed.escalation.fields()["escalations"]
    assert fields["taken"] == len(armed.lines)
    assert fields["suppressed"] == 0
    assert armed.escalation.taken_of("1", "forward") >= 1


def test_spans_of_kernels_lie_in_the_step_that_was_looked_at() -> None:
    with _armed() as armed:
        _train(16)
    step = armed.lines[0]["step"]
    trace = armed.traces[step - 1]
    assert {span.step for span in armed.kernels} == {step}
    assert all(trace.start_ns <= span.start_ns <= span.end_ns <= trace.end_ns for span in armed.kernels)
    inner = [span for span in armed.kernels if span.layer == "1.mix" or span.layer == "1"]
    assert "aten::addmm" in {span.name for span in inner}
    parents = {span.span_id for trace in armed.traces for span in trace.spans if span.kind == "step"}
    assert {span.parent_id for span in armed.kernels} <= parents
    assert armed.lines[0]["span_id"] in parents


def test_they_lie_there_also_where_the_look_goes_on_for_many_steps() -> None:
    model = nn.Sequential(Restless(0.0002))
    with _armed() as armed:
        for _ in range(400):
            model(torch.randn(1, 16))
    line = armed.lines[0]
    assert line["breakdown"]["steps"] > 40
    spans = [span for span in armed.kernels if span.start_ns < armed.traces[line["step"]].start_ns]
    assert len(spans) > 5
    assert {(span.step, span.parent_id) for span in spans} == {(line["step"], line["span_id"])}


def test_times_of_a_step_that_is_looked_at_do_not_count() -> None:
    with _armed() as armed:
        _train(16)
    assert armed.looked_at
    assert armed.looked_at[0] == armed.lines[0]["step"]


def test_what_comes_too_often_is_suppressed_and_counted() -> None:
    with _armed(rate_limit=0.001) as armed:
        _train(16)
    assert len(armed.lines) == 1
    assert armed.escalation.fields()["escalations"]["suppressed"] >= 1


def test_switched_off_nothing_is_looked_at() -> None:
    for options in ({"escalate": "off"}, {"profile": "off"}):
        with _armed(**options) as armed:
            _train(14)
        assert armed.lines == []
        assert armed.escalation.fields() == {}


def test_while_the_program_profiles_itself_kernels_are_not_told() -> None:
    with _armed() as armed, torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        _train(16)
    assert armed.lines
    assert all(line["kernels"] == [] for line in armed.lines)
    assert "profiler of its own" in armed.lines[0]["unavailable"][0]
    assert sum(event.count for event in own.key_averages() if event.key == "aten::addmm") == 16 * 3


def test_a_profiler_that_the_program_starts_within_a_look_takes_over() -> None:
    with _armed() as armed:
        _train(12)  # the last of them is looked at, and so is what comes next
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            _train(2)
    assert sum(event.count for event in own.key_averages() if event.key == "aten::addmm") == 2 * 3
    assert any("began to run a profiler" in reason for reason in armed.lines[0]["unavailable"])


def test_a_look_waits_for_the_thread_that_can_stop_its_profiler() -> None:
    model = nn.Sequential(nn.Linear(16, 16), Restless(), nn.Linear(16, 1))

    def step() -> None:
        model(torch.randn(4, 16)).sum().backward()

    with _armed(_helper=()) as armed, ThreadPoolExecutor(1) as other:
        for _ in range(12):
            step()
        assert torch.autograd._profiler_enabled()
        for _ in range(3):  # of which the first ends the step that is looked at
            other.submit(step).result()
        assert not armed.lines
        step()
        assert not torch.autograd._profiler_enabled()
        assert armed.lines[0]["step"] == 12
        assert "aten::addmm" in {row["name"] for line in armed.lines for row in line["kernels"]}
        for _ in range(120):
            step()
        assert not torch.autograd._profiler_enabled()
    assert "several threads" in armed.lines[-1]["unavailable"][0]


def test_it_is_given_up_where_that_runs_no_step_any_more() -> None:
    model = nn.Sequential(nn.Linear(16, 16), Restless(), nn.Linear(16, 1))

    def step() -> None:
        model(torch.randn(4, 16)).sum().backward()

    with _armed(_helper=()) as armed, ThreadPoolExecutor(1) as other:
        for _ in range(12):
            step()
        for _ in range(10):
            other.submit(step).result()
        assert "another thread" in armed.lines[0]["unavailable"][-1]
        assert torch.autograd._profiler_enabled()
        for _ in range(220):
            other.submit(step).result()
        taken = len(armed.lines)
        for _ in range(2):  # what had to wait meanwhile is looked at now, each reason once
            step()
        latest = [(line["layer"], line["direction"], line["reason"]) for line in armed.lines[taken:]]
        assert latest
        assert len(set(latest)) == len(latest)
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize("threads", ["worker", "turns", "elsewhere"])
def test_a_process_ends_in_order_whatever_threads_its_steps_come_from(threads: str) -> None:
    """torch crashes at the end of one whose profiler was left running."""
    ran = run([PYTHON, "-m", "tests.numerics.profile.escalation.on_threads", threads], ROOT).ok()
    assert "ERROR" not in ran.err
    if threads != "elsewhere":
        assert "thread" in ran.out


def test_nothing_is_left_in_torch() -> None:
    before = profiler._enable_profiler, profiler._disable_profiler
    with _armed():
        assert profiler._enable_profiler is not before[0]
        _train(12)
    assert (profiler._enable_profiler, profiler._disable_profiler) == before
    assert not torch.autograd._profiler_enabled()
