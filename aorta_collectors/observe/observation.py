"""One look at one tensor: where it was seen, and what it held. Plain values that outlive the tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from aorta_collectors.observe.reduce import Stats

if TYPE_CHECKING:
    from aorta_collectors.observe.in_flight import Replayed
    from aorta_collectors.observe.step_trace import StepTrace


class Site:
    """A place where a tensor is read each step. Made once, when it is first needed.

    Attributes:
        layer: Path of the module below the root as torch names it.
        module_path: The same without the segments that wrappers add.
        direction: fwd, bwd, param, grad or pipeline.
        role: Channel, or track, sparse, loss, buffer.
        param: Name of the parameter, for those.
        tensor_path: Which tensor of a structured value, such as [0].mask; empty where the value is the tensor.
        bounds: Allowed range, or None.
        num_values: Parameters and buffers of the module; None where it has parts, with more of them.
        recorded: Whether anybody asked for records of it. The others serve to find the origin of a bad value alone.
        clean: What is noted down of a clean tensor whose range nobody wants: one object for all of them, which says
            nothing but where that was. Most records of a long run are never written, and cost no memory so.
    """

    __slots__ = (
        "bounds",
        "clean",
        "direction",
        "from_prev_step",
        "is_flow",
        "layer",
        "module_path",
        "num_values",
        "param",
        "recorded",
        "role",
        "tensor_path",
    )

    def __init__(
        self,
        layer: str,
        direction: str,
        role: str,
        param: str = "",
        *,
        module_path: str | None = None,
        tensor_path: str = "",
        bounds: tuple[float, float] | None = None,
        recorded: bool = True,
        is_flow: bool | None = None,
        num_values: int | None = None,
    ) -> None:
        self.layer = layer
        self.module_path = layer if module_path is None else module_path
        self.direction = direction
        self.role = role
        self.param = param
        self.tensor_path = tensor_path
        self.bounds = bounds
        self.recorded = recorded
        self.num_values = num_values
        # Values are read at the start of a step, so they are what the previous step left.
        self.from_prev_step = role in ("weight", "bias")
        # Only these advance the call counter, so that it can be lined up with a GEMM tool's "call #N".
        self.is_flow = role in ("act", "igrad") if is_flow is None else is_flow
        self.clean = Observation(self, torch.Size(), torch.float32, 0, 0.0, 0, None, None, None, Moment())


class Moment(NamedTuple):
    """When a tensor was read; shared by all that is read at that time.

    Attributes:
        phase: Stage of the batch: copy, sparse_start, sparse_wait, forward.
        batch_id: Number of the batch, counted from 1 as they come in; None where no tensor is followed.
        checkpoint: The module after whose call a followed tensor was read again.
        invocation: Number of the call of the module within the step, counted from 1; 0 for what is no call.
        recompute: Whether activation checkpointing was running the module again.
        optimizer_step: Optimizer steps taken so far.
    """

    phase: str = "forward"
    batch_id: int | None = None
    checkpoint: str = ""
    invocation: int = 0
    recompute: bool = False
    optimizer_step: int = 0


class Moments:
    """The step at hand, and its moments: made once each, since most of what is read in a step shares one.

    Attributes:
        step: Steps begun so far.
        first: Of the first call of a module in the step.
    """

    def __init__(self) -> None:
        self.step = 0
        self._of: dict[tuple[int, bool], Moment] = {}
        self._now = self.first = Moment()
        self.begin_step(0, None, 0)

    def begin_step(self, step: int, batch_id: int | None, optimizer_step: int) -> None:
        self.step = step
        self._begin(Moment("forward", batch_id, "", 0, False, optimizer_step))

    def optimizer_stepped(self, optimizer_step: int) -> None:
        self._begin(self._now._replace(optimizer_step=optimizer_step))

    def _begin(self, now: Moment) -> None:
        self._now = now
        self._of.clear()
        self.first = self.of(1, False)

    def of(self, invocation: int, recompute: bool) -> Moment:
        key = (invocation, recompute)
        moment = self._of.get(key)
        if moment is None:
            moment = self._of[key] = self._now._replace(invocation=invocation, recompute=recompute)
        return moment


class Observation(NamedTuple):
    """One look at one tensor.

    Attributes:
        shape, dtype: Of the tensor as the program has it.
        calls: Activations and input gradients seen so far, this one included.
        time: time.monotonic() in seconds.
        numel: Elements read.
        low, high: Finite range of a clean tensor, None where nobody wanted it; meaningless once `reduced` says more.
        reduced: None for a tensor that was found clean in one pass, its Stats otherwise. Of a tensor on a device, where
            to find them once they have arrived (`in_flight`): nobody is handed such an observation.
        extra: Further fields of the record: addresses, metadata of a sparse tensor.
    """

    site: Site
    shape: torch.Size
    dtype: torch.dtype
    calls: int
    time: float
    numel: int
    low: float | None
    high: float | None
    reduced: Stats | int | Replayed | None
    moment: Moment
    extra: Mapping[str, Any] | None = None

    @property
    def stats(self) -> Stats:
        """Raises TypeError before they have arrived from a device."""
        if self.reduced is None:
            return Stats.clean(self.numel, self.low, self.high)
        if isinstance(self.reduced, Stats):
            return self.reduced
        raise TypeError("what was seen has not arrived yet")

    @property
    def is_bad(self) -> bool:
        return self.reduced is not None and self.stats.bad


def place_of(step: int, rank: int, seen: Observation) -> dict[str, Any]:
    """Where and when something was seen, as an origin names it."""
    site, moment = seen.site, seen.moment
    return {
        "step": step,
        "rank": rank,
        "module": site.module_path,
        "layer_name": site.layer,
        "role": site.role,
        "tensor_path": site.tensor_path,
        "param_name": site.param,
        "kind": seen.stats.kind,
        "batch_id": moment.batch_id,
        "optimizer_step": moment.optimizer_step,
    }


class RootInfo(NamedTuple):
    """What was attached to a root: shown to the user at startup, and part of the evidence."""

    label: str
    watched_names: tuple[str, ...]
    params_scanned: int
    grad_params_planned: int
    skipped_params: tuple[dict[str, object], ...]


class Sink(Protocol):
    """Where observations go. Methods run between steps, on the training thread; what they raise is only counted."""

    def attached(self, root: RootInfo) -> None:
        """Hooks now stand on a root. Comes again for each further root."""

    def entered(self, step: int) -> None:
        """Step `step` (1, 2, ...) begins: the root is about to run its forward."""

    def ranges_wanted(self, step: int) -> bool:
        """Whether anybody wants the finite ranges of clean tensors in step `step`, which begins."""

    def forked(self) -> None:
        """A forked child of this process trains a model, where nothing is observed. Called in the child, once."""

    def observed(self, trace: StepTrace) -> None:
        """All that was seen in a step, in the order in which it was seen."""
