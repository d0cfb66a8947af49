"""Metrics and sources, as the engine tells them of a real training and a real generate."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

from aorta_collectors.numerics import step
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.marker import Marks
from aorta_collectors.numerics.metrics.intervals import Intervals
from aorta_collectors.numerics.metrics.step_metrics import StepMetrics
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.sources.data import DataSource
from aorta_collectors.numerics.sources.generation import GenerationSource
from aorta_collectors.numerics.sources.tokenizers import TokenizerSource
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.schema_check import load_schema
from tests.numerics.sources.text import language_model, tokenizer


class Kept:
    """Keeps steps, as a session writes them."""

    def __init__(self) -> None:
        self.traces: list[StepTrace] = []

    def attached(self, label: str) -> None: ...
    def entered(self, step: int) -> None: ...
    def forked(self) -> None: ...
    def stepped(self, trace: StepTrace) -> None:
        self.traces.append(trace)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [line for trace in self.traces for line in (*trace.past_metrics, trace.metrics) if line is not None]


class Armed:
    """An engine with the parts of this package's folder."""

    def __init__(self) -> None:
        config = Config(interval=4)
        timeline = Timeline(config, LamportClock())
        self.said: list[str] = []
        self.kept = Kept()
        data = DataSource(timeline, pytest.fail)
        metrics = StepMetrics(config, timeline, pytest.fail, say=self.said.append, remaining=data.remaining)
        self.intervals = Intervals(config.interval, self.said.append)
        parts: list[Part] = [data, metrics, self.intervals, Marks(timeline, pytest.fail)]
        parts += [TokenizerSource(timeline, pytest.fail), GenerationSource(timeline, pytest.fail)]
        self.engine = Engine(config, parts, timeline, self.kept)

    def __enter__(self) -> Armed:
        self.engine.arm()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.disarm()
        assert self.engine.first_error is None


def train(model: nn.Module) -> list[tuple[float, float]]:
    """Loss and norm of each of eight steps, with a GradScaler."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    torch.manual_seed(1)
    dataset = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    reached = []
    for inputs, targets in DataLoader(dataset, batch_size=4, shuffle=True):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        with step("UNSCALE"):
            scaler.unscale_(optimizer)
        norm = clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        reached.append((loss.item(), norm.item()))
    return reached


def test_a_training_has_the_same_losses_and_they_are_told() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    bare = train(copy.deepcopy(model))
    with Armed() as armed:
        seen = train(model)
    assert seen == bare
    lines = armed.kept.lines
    assert [(line["loss"], line["grad_norm"]) for line in lines] == bare
    assert [line["samples"] for line in lines] == [4] * 8
    assert [line["kind"] for line in lines] == ["training"] * 8
    for line in lines:
        jsonschema.validate({"rank": 0, "pid": 1, **line}, load_schema("numerics.step"))
        assert {"data", "opt"} <= set(line["phases_ms"])
        assert sum(line["phases_ms"].values()) <= line["step_ms"] * 1.1
    assert lines[-1]["eta_s"] == 0.0
    assert lines[0]["eta_s"] == pytest.approx(7 * lines[0]["step_ms"] / 1e3)
    for trace in armed.kept.traces:
        names = [span.name for span in trace.spans]
        assert "DATA" in names
        assert names.count("UNSCALE") == 1
    schema = load_schema("numerics.summary")["properties"]
    fields = armed.intervals.fields()
    for name in ("phases", "intervals"):
        jsonschema.validate(fields[name], schema[name])
    assert [(one["first_step"], one["last_step"]) for one in fields["intervals"]] == [(1, 4), (5, 8)]
    assert [line.split()[0] for line in armed.said] == [
        *[f"step={number}" for number in range(1, 5)],
        "steps",
        *[f"step={number}" for number in range(5, 9)],
        "steps",
    ]


def test_generating_is_tokens_chosen_between_calls() -> None:
    text, model = tokenizer(), language_model()
    with Armed() as armed:
        inputs = text(["the quick", "fox"], padding=True, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
        text.batch_decode(ids)
    traces = armed.kept.traces
    assert [trace.kind for trace in traces] == ["inference"] * 4
    assert [line["tokens"] for line in armed.kept.lines] == [4, 2, 2, 2]
    names = [span.name for trace in traces for span in trace.spans]
    assert (names.count("SAMPLE"), names.count("TOKENIZE"), names.count("DECODE")) == (4, 1, 1)
    for trace in traces:
        forwards = [span for span in trace.spans if span.name == "FORWARD"]
        for span in trace.spans:
            if span.name == "SAMPLE":
                assert all(span.end_ns <= one.start_ns or span.start_ns >= one.end_ns for one in forwards)
