"""H2D and GRAD_H2D: tensors on their way from host memory to a device, by Tensor.to and Tensor.cuda.

What goes through them counts too: modules, and torchrec's jagged tensors. Within a model's forward it belongs to that.
Between the end of a backward pass and the optimizer's step it is gradients (GRAD_H2D). A copy that the program does not
wait for takes as long as it took to ask for it. Tensor.copy_ into memory of a device is not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.sources.method import MethodPatch

if TYPE_CHECKING:
    from aorta_collectors.numerics.brick import Brick
    from aorta_collectors.numerics.engine.timeline import Timeline

H2D, GRAD_H2D = "H2D", "GRAD_H2D"
_METHODS = ("to", "cuda")


class TransferSource(Part):
    """Stands around the two methods.

    Args:
        has_device: Whether tensors can be anywhere but in host memory. Otherwise nothing is done.
    """

    def __init__(self, timeline: Timeline, warn: Callable[[str], None], has_device: bool) -> None:
        self._timeline = timeline
        self._guarded = Guard(timeline, warn)
        self._has_device = has_device
        self._patches: list[MethodPatch] = []
        self._thread = threading.local()
        self._is_in_forward = False
        self._awaits_optimizer = False

    def start(self) -> None:
        if self._has_device:
            self._patches = [MethodPatch(Tensor, name, self._around) for name in _METHODS]

    def stop(self) -> None:
        for patch in self._patches:
            patch.undo()
        self._patches = []

    def wants(self, brick: Brick) -> bool:
        return brick.is_root

    def step_began(self, step: int) -> None:
        self._awaits_optimizer = False

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        self._is_in_forward = True

    def root_left(self, brick: Brick, result: Any) -> None:
        self._is_in_forward = False

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        self._is_in_forward = False  # a forward that raised was not left

    def backward_ended(self) -> None:
        self._awaits_optimizer = True

    def optimizer_began(self, optimizer: torch.optim.Optimizer) -> None:
        self._awaits_optimizer = False

    def step_ended(self, trace: StepTrace) -> None:
        self._is_in_forward = False

    def _around(self, original: Any) -> Any:
        def move(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not self._patches or self._is_in_forward or getattr(self._thread, "moves", False):
                return original(tensor, *args, **kwargs)
            if not _is_on_host(tensor):
                return original(tensor, *args, **kwargs)
            self._thread.moves = True
            began_ns = perf_counter_ns()
            try:
                moved = original(tensor, *args, **kwargs)
            finally:
                self._thread.moves = False
            ended_ns = perf_counter_ns()
            if moved is not tensor and self._guarded.is_here:
                self._guarded(self._moved, moved, began_ns, ended_ns)
            return moved

        return move

    def _moved(self, moved: Any, began_ns: int, ended_ns: int) -> None:
        if not isinstance(moved, Tensor) or _is_on_host(moved):
            return
        name = GRAD_H2D if self._awaits_optimizer else H2D
        with torch._C.DisableTorchFunction():
            size = moved.numel() * moved.element_size()
        self._timeline.add(name, "phase", began_ns, ended_ns, attributes={"bytes": size})


def _is_on_host(tensor: Tensor) -> bool:
    # A mode or a subclass of the program's is not to see that this is asked.
    with torch._C.DisableTorchFunction():
        return tensor.is_cpu


def built_for_device() -> bool:
    """Whether this torch has been built for any accelerator.

    Whether there is one is not asked: that would begin to initialise it, and processes forked later could not use it.
    """
    is_built = torch.version.cuda or torch.version.hip or torch.backends.mps.is_built()
    return bool(is_built or getattr(torch.version, "xpu", None))
