"""Where a bad value came into being: from the first NaN or Inf of a step back to the code that made it.

All that a step showed lies in the order in which it happened. So the first bad observation tells the place
(`attribution`): what came before it was clean.

Bad by design is no origin: -inf that a mask put there, as long as nothing worse comes of it, and gradients that made a
GradScaler skip a step, as long as it finds a scale that works.
"""

from __future__ import annotations

from typing import Any

import torch

from aorta_collectors.observe.attribution import GRADIENTS, History, attribute
from aorta_collectors.observe.masks import MaskSense
from aorta_collectors.observe.observation import Observation, place_of
from aorta_collectors.observe.step_trace import Outcome, StepTrace
from aorta_collectors.observe.trace import Call

_CLOSE_BITS = 8


class OriginFinder:
    """Takes in step after step; the first bad value whose origin is decided stays the answer.

    Args:
        rank, world_size: Of this process.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._origin: dict[str, Any] | None = None
        # Gradients that made a GradScaler skip a step, until it is seen to recover.
        self._undecided: dict[str, Any] | None = None
        # The optimizers whose steps were skipped for them.
        self._skippers: frozenset[int] = frozenset()
        self._history = History()
        # Whether they are what a scale that is too large makes of sound ones, still to be found a smaller one for.
        self._is_overflow = False
        self._expected: dict[str, dict[str, Any]] = {}
        self._masks = MaskSense()

    @property
    def origin(self) -> dict[str, Any] | None:
        """The origin, or None while nothing bad has been seen that is not bad by design."""
        return self._origin or (None if self._is_overflow else self._undecided)

    @property
    def expected(self) -> dict[str, dict[str, Any]]:
        """What is bad by design, by kind ("mask", "scaler_skip"): in how many steps, and where first."""
        if self._origin is None and self._undecided is not None and self._is_overflow:
            return {**self._expected, "scaler_skip": _entry("scaler_skip", self._undecided)}
        return self._expected

    def step(self, trace: StepTrace) -> bool:
        """Take in a step; returns whether the origin has become known by it."""
        if self._origin is not None:
            return False
        self._settle(trace.outcome)
        sight = self._masks.look(trace)
        if sight.fault is not None and self._origin is None:
            self._decide(trace, sight.fault)
        elif sight.mask is not None and sight.fault is None:
            self._expect("mask", _place(trace.step, trace.observations[sight.mask], self._rank))
        self._history = self._history.after(trace)
        return self._origin is not None

    def _settle(self, outcome: Outcome) -> None:
        """What the outcome of a step says of bad gradients in an earlier one."""
        if self._undecided is None:
            return
        if not self._skippers:
            self._skippers = outcome.skipped
            if outcome.stepped and not outcome.skipped:
                # The optimizer used them.
                self._origin, self._undecided = self._undecided, None
        elif self._skippers & outcome.stepped and not self._skippers & outcome.skipped:
            self._expect("scaler_skip", self._undecided)
            self._undecided, self._skippers = None, frozenset()

    def _decide(self, trace: StepTrace, index: int) -> None:
        seen = trace.observations[index]
        stage, module, reason, call = attribute(trace, index, self._history, self._world_size)
        unscanned = _unscanned(trace, seen, call) if stage == "forward" else []
        if unscanned:
            stage, reason = (
                "unknown",
                "its inputs were clean and its output is not, but not all of its parameters were read",
            )
        origin = {
            **_place(trace.step, seen, self._rank),
            **trace.evaluation_fields(),
            "stage": stage,
            "module": module,
            "reason": reason,
            "evidence": _evidence(trace, index, call),
            "not_captured": unscanned,
        }
        if call is not None:
            origin.update(invocation=call.invocation, recompute=call.recompute)
        if stage == "optimizer" and seen.site.direction == "param":
            origin["step"] -= 1  # seen when the next one began
        elif call is not None and call.is_ahead_of_step and not _is_trained_after(trace, index):
            origin["step"] += 1  # it prepares what the next one computes with
        is_gradient = seen.site.direction in GRADIENTS
        is_scaled_loss = seen.site.role == "loss" and not seen.site.tensor_path
        outcome = trace.outcome
        # Where micro-batches are summed up, the scaler decides in a later step.
        awaits_scaler = bool(outcome.skipped) or (outcome.scaled and not outcome.stepped)
        if awaits_scaler and (is_gradient or is_scaled_loss):
            if self._undecided is None:
                self._undecided, self._skippers = origin, outcome.skipped
                self._is_overflow = is_scaled_loss or _was_close_to_overflow(trace, index)
            return
        # A skipped step before it, from which the scaler had not recovered yet, came first.
        self._origin, self._undecided = self._undecided or origin, None

    def _expect(self, kind: str, place: dict[str, Any]) -> None:
        if kind in self._expected:
            self._expected[kind]["steps"] += 1
        else:
            self._expected[kind] = _entry(kind, place)


def _entry(kind: str, place: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "steps": 1, "first": place}


def _was_close_to_overflow(trace: StepTrace, index: int) -> bool:
    """Whether a gradient or the loss before the bad one was so large that a smaller scale would have helped."""
    for seen in trace.observations[:index]:
        is_scaled = seen.site.direction in GRADIENTS or seen.site.role == "loss"
        largest = seen.stats.finite_abs_max
        if not is_scaled or largest is None or not seen.dtype.is_floating_point:
            continue
        if largest >= torch.finfo(seen.dtype).max * 2.0**-_CLOSE_BITS:
            return True
    return False


def _unscanned(trace: StepTrace, seen: Observation, call: Call | None) -> list[str]:
    """Parameters of the module that made a value which were not looked at."""
    if call is None or seen.site.role == "input":
        return []
    return [name for name in trace.unscanned if name.rpartition(".")[0] == call.layer]


def _is_trained_after(trace: StepTrace, index: int) -> bool:
    return any(seen.site.direction in (*GRADIENTS, "update") for seen in trace.observations[index:])


def _place(step: int, seen: Observation, rank: int) -> dict[str, Any]:
    stats = seen.stats
    return {
        **place_of(step, rank, seen),
        "dtype": str(seen.dtype),
        "nan_count": stats.nan_count,
        "inf_count": stats.inf_count,
        "numel": stats.numel,
    }


def _evidence(trace: StepTrace, index: int, call: Call | None) -> list[dict[str, Any]]:
    """What speaks for it: the inputs of the call that made the value, its module's parameters, and the value itself."""
    shown = [given for given in (call.inputs if call is not None else []) if given < index][-8:]
    if call is not None:
        shown += [
            at
            for at, seen in enumerate(trace.observations[:index])
            if seen.site.layer == call.layer and seen.site.direction == "param"
        ][:8]
    entries = []
    for at in [*sorted(set(shown)), index]:
        seen = trace.observations[at]
        stats = seen.stats
        entries.append(
            {
                "layer_name": seen.site.layer,
                "direction": seen.site.direction,
                "role": seen.site.role,
                "tensor_path": seen.site.tensor_path,
                "param_name": seen.site.param,
                "shape": [int(size) for size in seen.shape],
                "nan_count": stats.nan_count,
                "inf_count": stats.inf_count,
                "finite_abs_max": stats.finite_abs_max,
                "seq": at,
            }
        )
    return entries
