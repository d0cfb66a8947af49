"""Metrics of steps on a GPU: numbers are read a step later, without waiting, and are those of the moment."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.metrics.step_metrics import StepMetrics
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.sources.transfers import TransferSource, built_for_device
from aorta_collectors.numerics.spans.lamport import LamportClock

_STEPS = 8


def run(report: Any, options: Any) -> None:
    report.check("steps are measured without a synchronisation", lambda: _measured(clips=False))
    report.check("steps that clip are measured without a synchronisation", lambda: _measured(clips=True))


class _Kept:
    """Keeps steps, as a session writes them."""

    def __init__(self) -> None:
        self.traces: list[StepTrace] = []

    def attached(self, label: str) -> None: ...
    def entered(self, step: int) -> None: ...
    def forked(self) -> None: ...
    def stepped(self, trace: StepTrace) -> None:
        self.traces.append(trace)


def _train(clips: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Loss and norm of each step, as the device has them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [torch.randn(64, 256).pin_memory() for _ in range(_STEPS)]
    torch.cuda.synchronize()
    reached = []
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            loss = model(batch.to("cuda", non_blocking=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            if clips:
                clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            reached.append((loss.detach().clone(), norm))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return reached


def _measured(clips: bool) -> str:
    bare = _train(clips)
    kept, timeline = _Kept(), Timeline(Config(), LamportClock())
    warned: list[str] = []
    metrics = StepMetrics(Config(), timeline, warned.append, say=lambda line: print(line, file=sys.stderr))
    transfers = TransferSource(timeline, warned.append, built_for_device())
    engine = Engine(Config(), [transfers, metrics], timeline, kept)
    engine.arm()
    try:
        seen = _train(clips)
    finally:
        engine.disarm()
    assert engine.first_error is None, engine.first_error
    assert not warned, warned
    assert all(
        torch.equal(one, other)
        for before, after in zip(bare, seen, strict=True)
        for one, other in zip(before, after, strict=True)
    )
    lines = [line for trace in kept.traces for line in (*trace.past_metrics, trace.metrics) if line is not None]
    assert [line["step"] for line in lines] == list(range(1, _STEPS + 1)), lines
    for line, (loss, norm) in zip(lines, seen, strict=True):
        assert line["loss"] == loss.item(), (line, loss)
        assert abs(line["grad_norm"] / norm.item() - 1) < 1e-4, (line, norm)
        assert 0 < line["memory_used_mb"] < line["memory_total_mb"], line
    moved = [span for trace in kept.traces for span in trace.spans if span.name == "H2D"]
    assert len(moved) >= _STEPS, moved
    late = sum(len(trace.past_metrics) for trace in kept.traces)
    return f"{len(lines)} lines, {late} of them a step later"
