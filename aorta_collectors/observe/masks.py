"""Telling -Inf that a mask put there from -Inf that is a fault, in the order in which a step shows them.

-Inf that were written (`makers`), that a module had a mask at hand for, or that came in with its inputs, are a mask's.
So are those that earlier steps have shown at the same place and that came to nothing. -Inf that arithmetic made of
clean values, such as log(0), are a fault, whatever becomes of them, and so are those beside positive values that are
near the dtype's largest number themselves. Where neither can be told they are a fault if they
go into a layer that no mask is made for, or if worse comes of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.trace import Call

_FORWARD = ("input", "act", "buffer", "weight", "bias")
# Of the dtype's largest number: a step or two before the positive side overflows as well.
_NEAR = 16
_Key = tuple[str, str, str]


class Sight(NamedTuple):
    """What of a step has to be explained: the index of an observation, or None; and one that shows a mask, or None."""

    fault: int | None
    mask: int | None


class MaskSense:
    """Goes through steps, one after the other."""

    def __init__(self) -> None:
        self._came_to_nothing: set[_Key] = set()
        self._buffers: set[_Key] = set()
        self._extreme_buffers: set[_Key] = set()
        self._masked_parameters: set[tuple[str, str]] = set()

    def look(self, trace: StepTrace) -> Sight:
        """Find the first observation of a step that shows NaN or Inf and is no mask."""
        suspects: list[int] = []
        unknown: list[int] = []
        for index, seen in enumerate(trace.observations):
            is_extreme = seen.site.role == "buffer" and self._is_extreme_by_design(seen)
            if seen.reduced is None or seen.site.direction == "pipeline" or is_extreme:
                continue
            stats = seen.stats
            if not (stats.nan_count or stats.inf_count):
                continue
            if stats.only_negative_infinite and self._is_masked_parameter(seen):
                continue
            may_be_mask = seen.site.role in _FORWARD and seen.site.direction in ("fwd", "param")
            if not may_be_mask or not stats.only_negative_infinite:
                return Sight(_cause(trace, index, unknown), suspects[0] if suspects else None)
            suspects.append(index)
            if seen.site.direction == "param":
                self._masked_parameters.add((seen.site.layer, seen.site.param))
            if self._is_written(trace, index):
                continue
            mark = trace.mark_of(index)
            if (mark.computed or _ran_over(seen)) and mark.call is not None:
                return Sight(index, None)
            unknown.append(index)
            if mark.call is not None and mark.call.takes_no_mask and seen.site.role == "input":
                return Sight(unknown[0], None)
        self._came_to_nothing.update(_key(trace.observations[index]) for index in suspects)
        return Sight(None, suspects[0] if suspects else None)

    def _is_extreme_by_design(self, seen: Observation) -> bool:
        """Whether a buffer holds Inf, and has since it was first looked at, as a running minimum does."""
        key = _key(seen)
        is_first_look = key not in self._buffers
        self._buffers.add(key)
        if seen.reduced is None or seen.stats.nan_count:
            return False
        if is_first_look and seen.stats.inf_count:
            self._extreme_buffers.add(key)
        return key in self._extreme_buffers

    def _is_masked_parameter(self, seen: Observation) -> bool:
        """Whether a parameter, after the optimizer's step, had -Inf already before it."""
        return (
            seen.site.direction in ("update", "last") and (seen.site.layer, seen.site.param) in self._masked_parameters
        )

    def _is_written(self, trace: StepTrace, index: int) -> bool:
        seen, mark = trace.observations[index], trace.mark_of(index)
        if seen.stats.finite_min == 0.0 and seen.stats.finite_max == 0.0:
            return True  # nothing but 0 and -Inf: an additive mask itself
        if mark.computed is False or _key(seen) in self._came_to_nothing:
            return True
        call = mark.call
        if call is None:
            return False
        has_mask = call.has_mask or (call.is_in_masked and mark.computed is None)
        return has_mask or any(_is_masked(trace.observations[given]) for given in call.inputs if given < index)


def _cause(trace: StepTrace, index: int, unknown: list[int]) -> int:
    """The observation that NaN or Inf at `index` goes back to: itself, or -Inf that may have been a mask's."""
    seen, (call, token, _) = trace.observations[index], trace.mark_of(index)
    if seen.site.role == "loss":
        return next((other for other in unknown if _is_given_out_by_root(trace, other)), index)
    if token is not None:
        # -Inf that the forward pass took in its stride, and that come back as NaN where they were made.
        around_it = [*token.consumers, *token.producers]
        return next((other for other in unknown if trace.mark_of(other).call in around_it), index)
    if call is None or seen.site.role not in _FORWARD:
        return index
    if any(given in unknown for given in call.inputs):
        return unknown[0]
    # The code of the module around the call, or of the module itself around its parts.
    around = call.parent if seen.site.role == "input" else call
    return next((other for other in unknown if _is_used_in(trace, other, around)), index)


def _is_given_out_by_root(trace: StepTrace, index: int) -> bool:
    call = trace.mark_of(index).call
    return call is not None and call.parent is None and trace.observations[index].site.role == "act"


def _is_used_in(trace: StepTrace, index: int, around: Call | None) -> bool:
    """Whether the code of a call sees the tensor: as its own input, or as what a part gives out."""
    call = trace.mark_of(index).call
    if call is None or around is None:
        return False
    return call is around or (call.parent is around and trace.observations[index].site.role == "act")


def _is_masked(seen: Observation) -> bool:
    return seen.reduced is not None and seen.stats.only_negative_infinite


def _ran_over(seen: Observation) -> bool:
    """Whether -Inf stand beside positive values near the end of the dtype's range: what is finite grew there as well.

    A mask is of one sign, so that only the positive side tells.
    """
    high = seen.stats.finite_max
    return high is not None and seen.dtype.is_floating_point and high >= torch.finfo(seen.dtype).max / _NEAR


def _key(seen: Observation) -> _Key:
    site = seen.site
    # A buffer is looked at when a step begins, and again when its module has run.
    return site.layer, site.role, site.param or site.tensor_path
