"""One look at one tensor: where it was seen, and what it held. Plain values that outlive the tensor."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from aorta_collectors.observe.reduce import Stats


class Site:
    """A place where a tensor is read each step: a layer, a direction and a role. Made once, at attach."""

    __slots__ = ("direction", "from_prev_step", "is_flow", "layer", "param", "role")

    def __init__(self, layer: str, direction: str, role: str, param: str = "") -> None:
        self.layer = layer
        self.direction = direction
        self.role = role
        self.param = param
        # Values are read at the start of a step, so they are what the previous step left.
        self.from_prev_step = role in ("weight", "bias")
        # Only these advance the call counter, so that it can be lined up with a GEMM tool's "call #N".
        self.is_flow = role in ("act", "igrad")


class Observation(NamedTuple):
    """A tensor as it was at one moment.

    Attributes:
        site: Where.
        shape: Of the tensor as the program has it.
        dtype: Likewise.
        calls: Activations and input gradients seen so far in this process, this one included.
        time: time.monotonic() in seconds.
        numel: Elements read.
        low, high: The range, where `reduced` is None (a clean tensor).
        reduced: Full statistics, or a device row that still has to come to the host; None for a clean tensor.
    """

    site: Site
    shape: torch.Size
    dtype: torch.dtype
    calls: int
    time: float
    numel: int
    low: float
    high: float
    reduced: Stats | torch.Tensor | None

    @property
    def stats(self) -> Stats:
        """Raises TypeError while the row is still on its device: the observer drains before it hands out."""
        if self.reduced is None:
            return Stats.clean(self.numel, self.low, self.high)
        if isinstance(self.reduced, Stats):
            return self.reduced
        raise TypeError("this observation has not been drained yet")


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

    def forked(self) -> None:
        """A forked child of this process trains a model, where nothing is observed. Called in the child, once."""

    def observed(self, step: int, observations: list[Observation]) -> None:
        """All that was seen in step `step`, in the order in which it was seen; every `stats` is readable."""
