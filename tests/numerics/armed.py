"""An engine armed around a block of code, with a sink that keeps what it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.numerics.spans.span import Span
from tests.numerics.models import Sample


class Armed:
    """What an engine reported.

    Attributes:
        traces: Of the steps that are over.
        on_fork: Called in a fork that trains.
    """

    def __init__(self, config: Config, parts: Sequence[Part]) -> None:
        self.labels: list[str] = []
        self.entered_steps: list[int] = []
        self.traces: list[StepTrace] = []
        self.said: list[str] = []
        self.on_fork: Callable[[], object] = lambda: None
        self.timeline = Timeline(config, LamportClock())
        self.engine = Engine(config, parts, self.timeline, self, self.said.append)

    def attached(self, label: str) -> None:
        self.labels.append(label)

    def entered(self, step: int) -> None:
        self.entered_steps.append(step)

    def stepped(self, trace: StepTrace) -> None:
        self.traces.append(trace)

    def forked(self) -> None:
        self.on_fork()

    @property
    def spans(self) -> list[Span]:
        return [span for trace in self.traces for span in trace.spans]

    def named(self, name: str, direction: str | None = None, step: int | None = None) -> list[Span]:
        return [
            span
            for span in self.spans
            if span.name == name and direction in (None, span.direction) and step in (None, span.step)
        ]

    def of(self, layer: str, direction: str, step: int) -> Span:
        """The one span of a module in a step."""
        (found,) = (span for span in self.spans if (span.layer, span.direction, span.step) == (layer, direction, step))
        return found

    def parent(self, span: Span) -> Span | None:
        return next((other for other in self.spans if other.span_id == span.parent_id), None)


@contextlib.contextmanager
def armed(*parts: Part, **options: Any) -> Iterator[Armed]:
    """Disarmed when the block ends, so that its last step is over; no exception may have been caught then."""
    seen = Armed(Config(**options), parts)
    seen.engine.arm()
    try:
        yield seen
    finally:
        seen.engine.disarm()
    assert seen.engine.first_error is None, seen.engine.first_error


def train(sample: Sample, steps: int = 2) -> list[torch.Tensor]:
    """Some steps of AdamW; returns the losses."""
    optimizer = torch.optim.AdamW(sample.model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sample.loss()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses
