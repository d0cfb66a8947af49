"""What is known of a run of numerics at one moment: the answer of `top`, of which --json prints the fields by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aorta_collectors.analysis.snapshot import Moment, Progress


@dataclass(frozen=True)
class TopBrick:
    """A module in one direction, in the time that is looked at.

    Attributes:
        calls: In that time, of all ranks.
        self_us: Of all calls, without its parts.
        share: self_us as a part of the steps' time; None where that is not known.
        mean_us: Of one call, with its parts; its coefficient of variation is `cv`.
        efficiency: Of the roofline; None where that is not known.
        escalations: Closer looks at it since the start.
    """

    layer: str
    module_type: str
    direction: str
    calls: int
    self_us: float
    share: float | None
    mean_us: float | None
    cv: float | None
    efficiency: float | None
    bound: str | None
    escalations: int


@dataclass(frozen=True)
class TopStep:
    """A named step, such as EMBED, in the time that is looked at: calls, microseconds of one, part of the steps."""

    name: str
    direction: str
    calls: int
    mean_us: float | None
    share: float | None


@dataclass(frozen=True)
class Span:
    """The time that bricks and named steps are of.

    Attributes:
        source: spans: the last seconds, as they were written; summary: since the start, as the summaries have it.
        steps: Of one rank.
        seconds: That these took, on one rank.
    """

    source: str
    steps: int
    seconds: float | None


@dataclass(frozen=True)
class Training:
    """The last step, and the course of the loss.

    Attributes:
        kind: training, evaluation or inference.
        loss: Of the last training step; "nan", "inf" or "-inf" where it is that.
        loss_ema: Its exponential moving average, with `smoothing` as the weight of what was before.
        best_loss: The lowest finite one, of step `best_loss_step`.
        tokens_per_s, samples_per_s: Of all ranks together.
        mfu: Mean of the ranks.
        step_ms, memory_used_mb, eta_s: Of the rank that has most.
        curve, ema_curve: (step, loss), thinned out.
    """

    step: int
    kind: str
    loss: float | str | None
    loss_ema: float | None
    smoothing: float
    best_loss: float | None
    best_loss_step: int | None
    tokens_per_s: float | None
    samples_per_s: float | None
    mfu: float | None
    grad_norm: float | str | None
    step_ms: float | None
    memory_used_mb: float | None
    memory_total_mb: float | None
    eta_s: float | None
    curve: tuple[tuple[int, float], ...]
    ema_curve: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Look:
    """An escalation: what for, and what dominated.

    Attributes:
        value, threshold: The coefficient of variation or the efficiency, and what it was held against.
        dominant: The category that took most of the time; empty where nothing could tell.
    """

    step: int
    rank: int
    layer: str
    direction: str
    reason: str
    value: float
    threshold: float
    brick_us: float
    dominant: str
    source: str


@dataclass(frozen=True)
class Top(Moment):
    """All of it.

    Attributes:
        profile: The option in force; empty before it is known.
        span: What bricks and named steps are of.
        efficiency: Of all bricks since the start, weighted by their time; None where none is known.
        looks: The last escalations, the newest first; of `looks_taken`, and `looks_suppressed` more that were not.
        stopped: Where `on_bad: stop` ended the run; None where it has not.
        passed_over_bytes: Of files of lines, what was not read.
    """

    progress: Progress | None = None
    profile: str = ""
    training: Training | None = None
    span: Span | None = None
    bricks: tuple[TopBrick, ...] = ()
    steps: tuple[TopStep, ...] = ()
    efficiency: float | None = None
    looks: tuple[Look, ...] = ()
    looks_taken: int = 0
    looks_suppressed: int = 0
    stopped: Mapping[str, Any] | None = None
    passed_over_bytes: int = 0
    unreadable_lines: int = 0
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
