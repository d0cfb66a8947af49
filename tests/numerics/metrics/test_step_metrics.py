"""A line for each step."""

from __future__ import annotations

import math
import time
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.metrics.step_metrics import StepMetrics
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.schema_check import load_schema
from tests.numerics.driving import Steps, backward, forward, timeline


def to_schema(trace: StepTrace) -> dict[str, Any]:
    """The step's line, which the session puts rank and process into."""
    assert trace.metrics is not None
    jsonschema.validate({"rank": 0, "pid": 1, **trace.metrics}, load_schema("numerics.step"))
    return trace.metrics


def measured(spent: Timeline, said: list[str], **given: Any) -> StepMetrics:
    metrics = StepMetrics(Config(interval=100), spent, pytest.fail, say=said.append, **given)
    metrics.start()
    return metrics


def test_lines_of_a_training() -> None:
    torch.manual_seed(0)
    said: list[str] = []
    spent = timeline()
    model = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(8 * 6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    metrics = measured(spent, said, remaining=lambda: 7, flops=lambda: 3e6, peak=lambda: 1e9)
    steps = Steps([metrics], spent)
    losses, norms = [], []
    began_ns = time.time_ns()
    for _ in range(12):
        steps.began()
        loss = forward(metrics, model, torch.randint(50, (4, 6))).square().mean()
        optimizer.zero_grad()
        backward(metrics, loss)
        metrics.optimizer_began(optimizer)
        norms.append(math.hypot(*[float(p.grad.norm()) for p in model.parameters() if p.grad is not None]))
        optimizer.step()
        losses.append(loss.item())
        steps.ended(phases_ns={"forward": 2_000_000})
    metrics.stop()
    lines = [to_schema(trace) for trace in steps.traces]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert [line["loss"] for line in lines] == losses
    assert [line["grad_norm"] for line in lines] == pytest.approx(norms, rel=1e-5)
    for line, trace in zip(lines, steps.traces, strict=True):
        seconds = line["step_ms"] / 1e3
        assert (line["samples"], line["tokens"]) == (4, 24)
        assert line["tokens_per_s"] == pytest.approx(24 / seconds)
        assert line["mfu"] == pytest.approx(3e6 / seconds / 1e9)
        assert line["phases_ms"] == {"forward": 2.0}
        assert line["step_ms"] <= (trace.end_ns - trace.start_ns) / 1e6
        assert abs(line["start_ns"] - began_ns) < 60e9
        assert line["memory_used_mb"] < line["memory_total_mb"]
    first, last = lines[0], lines[-1]
    assert first["eta_s"] == pytest.approx(7 * first["step_ms"] / 1e3)
    assert last["eta_s"] <= 7 * max(line["step_ms"] for line in lines) / 1e3
    assert len(said) >= 10
    assert said[0].startswith(f"step=1 training loss={losses[0]:.4g} tok/s=")
    fields = metrics.fields()["step_metrics"]
    assert fields["last_loss"] == losses[-1]
    assert (fields["best_loss"], fields["best_loss_step"]) == (min(losses), losses.index(min(losses)) + 1)
    rates = sorted(line["tokens_per_s"] for line in lines)
    assert fields["tokens_per_s"] == pytest.approx((rates[5] + rates[6]) / 2, rel=0.12)
    assert fields["flops_per_step"] == 3e6
    assert fields["memory_peak_mb"] >= last["memory_used_mb"] * 0.5
    schema = load_schema("numerics.summary")["properties"]["step_metrics"]
    jsonschema.validate(fields, schema)
    assert set(fields) == set(schema["properties"])


def test_a_program_that_only_infers_has_no_loss() -> None:
    spent = timeline()
    metrics = measured(spent, [])
    steps = Steps([metrics], spent)
    steps.began()
    with torch.no_grad():
        forward(metrics, nn.Linear(3, 2), torch.ones(5, 3))
    line = to_schema(steps.ended("inference"))
    metrics.stop()
    assert [line[name] for name in ("loss", "grad_norm", "tokens", "flops", "mfu", "eta_s")] == [None] * 6
    assert line["samples"] == 5


def test_a_loss_that_has_gone_bad_is_text_and_never_the_best() -> None:
    spent = timeline()
    metrics = measured(spent, [])
    steps = Steps([metrics], spent)
    for value in (2.0, 1.0, math.nan, -math.inf):
        steps.began()
        backward(metrics, torch.tensor(value, requires_grad=True).clone())
        steps.ended()
    metrics.stop()
    assert [to_schema(trace)["loss"] for trace in steps.traces] == [2.0, 1.0, "nan", "-inf"]
    fields = metrics.fields()["step_metrics"]
    assert (fields["last_loss"], fields["best_loss"], fields["best_loss_step"]) == ("-inf", 1.0, 2)


def test_the_times_of_a_counted_step_do_not_count() -> None:
    spent = timeline()
    metrics = measured(spent, [], remaining=lambda: 1)
    steps = Steps([metrics], spent)
    model = nn.Linear(2, 2)
    for pause, counted in ((0.002, False), (0.1, True), (0.002, False)):
        steps.began()
        forward(metrics, model, torch.ones(4, 2))
        time.sleep(pause)
        steps.ended(is_counted=counted)
    metrics.stop()
    lines = [to_schema(trace) for trace in steps.traces]
    assert lines[1]["is_counted"]
    assert lines[1]["eta_s"] == pytest.approx(lines[0]["step_ms"] / 1e3)
    assert metrics.fields()["step_metrics"]["samples_per_s"] > 4 / 0.1


def test_of_micro_batches_in_one_step_the_loss_is_the_mean() -> None:
    spent = timeline()
    metrics = measured(spent, [])
    steps = Steps([metrics], spent)
    steps.began()
    for value in (1.0, 3.0):
        backward(metrics, torch.tensor(value, requires_grad=True).clone())
    assert to_schema(steps.ended())["loss"] == 2.0
    metrics.stop()


def test_a_scaled_loss_is_told_unscaled() -> None:
    spent = timeline()
    metrics = measured(spent, [])
    steps = Steps([metrics], spent)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    steps.began()
    loss = forward(metrics, model, torch.ones(2, 3)).square().mean()
    backward(metrics, loss, scaler)
    scaler.unscale_(optimizer)
    metrics.optimizer_began(optimizer)
    norm = math.hypot(*[float(p.grad.norm()) for p in model.parameters() if p.grad is not None])
    line = to_schema(steps.ended())
    metrics.stop()
    assert line["loss"] == loss.item()
    assert line["grad_norm"] == pytest.approx(norm, rel=1e-5)
