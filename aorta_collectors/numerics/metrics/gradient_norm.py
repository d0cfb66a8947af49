"""The 2-norm of all gradients of a step, before anything clips them.

Where the program clips with torch.nn.utils.clip_grad_norm_, or FullyShardedDataParallel's own, it is the norm that this
computes anyway. Where it clips with another norm or by value, or does not clip, the gradients that this rank holds are
read once: before the clipping, or when the optimizer is about to step. Several groups that are clipped, or optimizers
that step, are taken together.

The norm is unknown where gradients lie spread over ranks (DTensor: reading them would be a collective that the program
did not ask for), are sparse with duplicates on a device (which would have to be waited for), or where the program clips
by itself, before its optimizer steps: then it is the norm after that.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.numerics.arriving import Arriving, Later, can_depart
from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.observe.modes import out_of_modes
from aorta_collectors.observe.patches import Patches

_SHARDED = "torch.distributed.fsdp.fully_sharded_data_parallel"
_MOST_CLIPPED = 1000
_READABLE = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class GradientNorm:
    """Takes the norm of each step.

    Args:
        guarded: Runs what is ours inside of calls of the program.
    """

    def __init__(self, guarded: Guard) -> None:
        self._guarded = guarded
        self._patches = Patches()
        # Of a program that trains without a model nobody asks for them.
        self._clipped: deque[_Norm | None] = deque(maxlen=_MOST_CLIPPED)
        self._stepped: dict[int, _Norm | None] = {}
        self._is_computing = False
        self._watch = ImportWatch(_SHARDED, functools.partial(guarded, self._stand_at_shards))

    def start(self) -> None:
        self._watch.start()
        # clip_grad_norm_ itself may have been imported by its name already; what it calls inside of its module has not.
        # The names are those of torch 2.13 and, back to 2.4, of the function as a whole.
        if hasattr(clip_grad, "_get_total_norm"):
            self._patches.put(clip_grad, "_get_total_norm", self._around_total_norm)
        else:
            self._patches.put(clip_grad, "clip_grad_norm_", self._around_clip_by_norm, [torch.nn.utils])
        if hasattr(clip_grad, "_group_tensors_by_device_and_dtype"):
            self._patches.put(clip_grad, "_group_tensors_by_device_and_dtype", self._around_grouping)

    def stop(self) -> None:
        self._watch.stop()
        self._patches.undo()

    def optimizer_began(self, optimizer: torch.optim.Optimizer) -> None:
        """It is about to step. What was clipped is known already."""
        if self._clipped:
            return
        norm = _norm_of(_gradients_of(param for group in optimizer.param_groups for param in group["params"]))
        scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer gets gradients that a GradScaler has scaled
        if norm is not None and isinstance(scale, Tensor) and out_of_modes(can_depart, scale):
            norm = norm.over(Arriving(scale))
        self._stepped[id(optimizer)] = norm

    def take(self) -> Later:
        """The norm since this was last asked."""
        norms = list(self._clipped) or list(self._stepped.values())
        self._clipped.clear()
        self._stepped = {}
        known = [norm for norm in norms if norm is not None]
        if len(known) < len(norms):
            return Later((), math.fsum)
        return _together(known)

    def _around_total_norm(self, original: Any) -> Any:
        def get_total_norm(tensors: Any, norm_type: Any = 2.0, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours():
                return original(tensors, norm_type, *args, **kwargs)
            tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            self._is_computing = True
            try:
                total = original(tensors, norm_type, *args, **kwargs)
            finally:
                self._is_computing = False
            self._guarded(self._computed, tensors, norm_type, total)
            return total

        return get_total_norm

    def _around_clip_by_norm(self, original: Any) -> Any:
        def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours():
                return original(parameters, *args, **kwargs)
            parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            # Before it scales them: what it returns may be another norm.
            self._guarded(self._clipping, _gradients_of(parameters))
            self._is_computing = True
            try:
                return original(parameters, *args, **kwargs)
            finally:
                self._is_computing = False

        return clip_grad_norm_

    def _stand_at_shards(self) -> None:
        kind = getattr(sys.modules[_SHARDED], "FullyShardedDataParallel", None)
        if isinstance(kind, type):
            self._patches.put(kind, "clip_grad_norm_", self._around_clip_of_shards)

    def _around_clip_of_shards(self, original: Any) -> Any:
        def clip_grad_norm_(model: Any, max_norm: Any, norm_type: Any = 2.0) -> Any:
            if not self._is_ours():
                return original(model, max_norm, norm_type)
            self._is_computing = True
            try:
                total = original(model, max_norm, norm_type)
            finally:
                self._is_computing = False
            # Of another norm than this nothing follows, and afterwards the gradients are no longer what they were.
            self._guarded(self._returned, total if float(norm_type) == 2.0 else None)
            return total

        return clip_grad_norm_

    def _around_grouping(self, original: Any) -> Any:
        def group_tensors_by_device_and_dtype(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            # The last call of clip_grad_value_ before it clamps. Clipping by a norm comes by here too, with its norm
            # known.
            if self._is_ours() and not self._clipped:
                self._guarded(self._clipping, tensors[0])
            return original(tensors, *args, **kwargs)

        return group_tensors_by_device_and_dtype

    def _is_ours(self) -> bool:
        return self._patches.stand and not self._is_computing and self._guarded.is_here

    def _computed(self, gradients: Sequence[Tensor], norm_type: Any, total: Any) -> None:
        if float(norm_type) != 2.0:
            self._clipping(gradients)
        elif gradients:
            self._returned(total)

    def _returned(self, total: Any) -> None:
        """The norm of what is clipped, as it was computed; None where it is another norm."""
        total = _whole(total)
        is_known = isinstance(total, Tensor) and out_of_modes(can_depart, total)
        self._clipped.append(_Norm([Arriving(total)]) if is_known else None)

    def _clipping(self, gradients: Iterable[Tensor]) -> None:
        self._clipped.append(_norm_of(gradients))


class _Norm:
    """A norm made of those of parts, divided by a scale."""

    def __init__(self, parts: Sequence[Arriving], scale: Arriving | None = None) -> None:
        self.parts = parts
        self.scale = scale

    def over(self, scale: Arriving) -> _Norm:
        return _Norm(self.parts, scale)


def _together(norms: Sequence[_Norm]) -> Later:
    numbers: list[Arriving] = []
    for norm in norms:
        numbers += norm.parts if norm.scale is None else (*norm.parts, norm.scale)

    def root_of_squares(_: Sequence[float]) -> float:
        parts = []
        for norm in norms:
            scale = norm.scale.value if norm.scale is not None else 1.0
            parts += [part.value / scale for part in norm.parts]
        if any(map(math.isnan, parts)):
            return math.nan  # math.hypot prefers Inf
        return math.hypot(*parts)

    return Later(numbers, root_of_squares)


def _whole(total: Any) -> Any:
    """What a DTensor holds here, if each rank holds all of it."""
    local = getattr(total, "_local_tensor", None)
    return local if local is not None and all(placed.is_replicate() for placed in total.placements) else total


def _gradients_of(params: Iterable[Tensor]) -> Iterator[Tensor]:
    """Lazily: a mode of the program is not to see that they are asked for."""
    return (gradient for param in params if (gradient := param.grad) is not None)


def _norm_of(gradients: Iterable[Tensor]) -> _Norm | None:
    """None where they cannot all be read."""
    return out_of_modes(_read, gradients)


@torch.no_grad()
def _read(gradients: Iterable[Tensor]) -> _Norm | None:
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for gradient in gradients:
        values = _values_of(gradient)
        if values is None:
            return None
        if values.numel():
            alike.setdefault((values.device, values.dtype), []).append(values)
    return _Norm([Arriving(_norm_of_alike(values)) for values in alike.values()])


def _values_of(gradient: Tensor) -> Tensor | None:
    if gradient.layout is torch.sparse_coo:
        if not (gradient.is_coalesced() or gradient.device.type == "cpu"):
            return None
        gradient = gradient.coalesce().values()
    if gradient.layout is not torch.strided or gradient.dtype not in _READABLE or not can_depart(gradient):
        return None
    return gradient


def _norm_of_alike(values: list[Tensor]) -> Tensor:
    # The squares of what half precision can hold do not fit into it.
    wide = torch.promote_types(values[0].dtype, torch.float32)
    norms = torch._foreach_norm(values, 2.0, None if wide is values[0].dtype else wide)
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(list(norms)))
