"""A span: something that had a beginning and an end. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

KERNEL_LAUNCH, BRICK_PROFILE = "KERNEL_LAUNCH", "BRICK_PROFILE"
#: The named steps of inference and, around them, of training. A program's own come by `step("NAME")`.
INFERENCE_STEPS = (
    *("TOKENIZE", "EMBED", "TRANSFORMER_BLOCK", "LM_HEAD", "SAMPLE", "DECODE"),
    *(KERNEL_LAUNCH, BRICK_PROFILE),
)
TRAINING_STEPS = ("DATA", "H2D", "FORWARD", "LOSS", "BACKWARD", "OPTIMIZER")
#: Phases of a training step, in their order, that durations are broken down into.
PHASES = (
    *("data", "h2d", "embed", "forward", "norm_lm", "loss"),
    *("grad_h2d", "lm_bwd", "norm_bwd", "blk_bwd", "embed_bwd", "backward", "opt"),
)
FORWARD, BACKWARD = "forward", "backward"

#: What a span is of: the process, one step of the clock, a named step, a module, a kernel or operation that a profiler
#: saw, a collective, or what the program itself has named.
KINDS = ("process", "step", "phase", "layer", "brick", "kernel", "collective", "user")


class Span(NamedTuple):
    """One span. Times are of time.perf_counter_ns(), in nanoseconds; the writer turns them into those of a day.

    Attributes:
        name: Of the named step, such as TRANSFORMER_BLOCK; of a module without one, its class; of a collective, the
            operation.
        kind: One of KINDS.
        layer: Path of the module; empty where there is none.
        direction: "forward", "backward", or empty.
        step: Of the clock, counted from 1; 0 before the first.
        overhead_ns: What observing took inside it. Its own time is end_ns - start_ns - overhead_ns.
        span_id: Unique in the process, above 0; of no meaning elsewhere.
        parent_id: Of the span that encloses it; 0 for the process itself.
        thread: threading.get_native_id() of where it ran.
        lamport: The process's logical clock when it began.
    """

    name: str
    kind: str
    layer: str
    direction: str
    step: int
    start_ns: int
    end_ns: int
    overhead_ns: int
    span_id: int
    parent_id: int
    thread: int
    lamport: int
    attributes: Mapping[str, Any] | None = None

    @property
    def own_ns(self) -> int:
        return self.end_ns - self.start_ns - self.overhead_ns
