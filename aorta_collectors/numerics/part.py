"""What a part of the engine is told, and the step that all parts add to.

A part is one concern: statistics of layers, counting of operations, metrics of a step. The engine calls only the
methods that a part overrides. They run on the program's own threads and must cost next to nothing; what they raise is
counted, and the program goes on, except for LineStopped, which ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aorta_collectors.numerics.brick import Brick, Timing
    from aorta_collectors.numerics.spans.span import Span


@dataclass
class StepTrace:
    """All that is known of one step when the next begins, or the observation ends.

    A step begins where the one before ended: after its optimizer, or its backward pass, or its forward pass, whichever
    was last. So the fetching of a batch belongs to the step that uses it.

    Attributes:
        step: Counted from 1.
        kind: "training", "evaluation" (no gradients, in a program that has trained), or "inference".
        start_ns, end_ns: time.perf_counter_ns().
        spans: Those that ended in it and are to be written, in the order of their ends.
        timings: Of modules (profile), whatever the `steps` filter lets be written, in the order of their ends.
        overhead_ns: What observing took between start_ns and end_ns.
        phases_ns: Nanoseconds by phase, of those that it had; disjoint (span.PHASES).
        is_counted: Whether operations were counted in it, or it was looked at closer, or the machine was measured in
            it, so that its durations do not count.
        apart_ns: What beginning a closer look at the next step has taken after this one: no part of what observing
            costs in general.
        stats: Lines for stats_<stem>.jsonl, of this step or, from a device, of an earlier one.
        bad_steps: Steps with a value among them that is bad.
        metrics: The line for steps_<stem>.jsonl; None where it has none, or where it is not known yet.
        past_metrics: Lines of earlier steps, in their order, for which values had to come from a device.
        escalations: Lines for escalations_<stem>.jsonl.
        warnings: What the user should be told.
        is_last: Whether no step comes after it: what is still on its way from a device may be waited for.
    """

    step: int
    kind: str = "inference"
    start_ns: int = 0
    end_ns: int = 0
    spans: list[Span] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    overhead_ns: int = 0
    phases_ns: dict[str, int] = field(default_factory=dict)
    is_counted: bool = False
    apart_ns: int = 0
    stats: list[dict[str, Any]] = field(default_factory=list)
    bad_steps: set[int] = field(default_factory=set)
    metrics: dict[str, Any] | None = None
    past_metrics: list[dict[str, Any]] = field(default_factory=list)
    escalations: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_last: bool = False


class Part:
    """A concern of its own. Every method may be left as it is."""

    def start(self) -> None:
        """Observation begins."""

    def stop(self) -> None:
        """Observation has ended; leave no hook behind. Comes after the last `step_ended`."""

    def wants(self, brick: Brick) -> bool:
        """Whether `entered`, `left` and `gradient` are wanted of a brick. Asked once for each."""
        return True

    def step_began(self, step: int) -> None:
        """The root is about to run its forward, as step `step`."""

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """A call of the module begins."""

    def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
        """A call of the module has ended in order."""

    def gradient(self, brick: Brick, index: int, grad: Tensor) -> None:
        """Backward has computed the gradient of an output of the module: of its `index`-th floating-point tensor."""

    def backward_left(self, brick: Brick) -> None:
        """The module's backward is over: the gradients of all its inputs are there."""

    def root_left(self, brick: Brick, result: Any) -> None:
        """The root's forward has ended."""

    def model_left(self) -> None:
        """An outermost call has ended, in order or by an exception. Modes that are on stay on while this runs."""

    def loss_scaled(self, outputs: Any) -> None:
        """A GradScaler is about to scale this, for a backward pass that starts from what it makes of it."""

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """A backward pass is about to begin from these."""

    def backward_ended(self) -> None:
        """It has ended."""

    def optimizer_began(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step; gradients are as it gets them."""

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """It has stepped."""

    def step_ended(self, trace: StepTrace) -> None:
        """The step is over. Add to `trace` what the part has of it."""

    def fields(self) -> Mapping[str, Any]:
        """Fields of the summary that are this part's, JSON-ready. Asked at any time, also after `stop`."""
        return {}


class LineStopped(SystemExit):
    """Ends the program where a value went bad (`on_bad: stop`), with the exit status EXIT_STOPPED.

    No Exception, so that a training loop that survives errors does not survive this.
    """
