"""What can be said of a bad value's origin from the watched tensors alone.

Only what was asked for has been looked at, so a decision needs luck: that the module that made the value is watched,
with all that goes into it. Otherwise the answer is "unknown", with what would have had to be looked at.
"""

from __future__ import annotations

from typing import Any

from aorta_collectors.observe.observation import Observation, place_of
from aorta_collectors.observe.step_trace import StepTrace

_REASONS = {
    "data": "the batch held it before the model read it",
    "parameter": "bad before the first step",
    "forward": "all that goes into it was watched, and clean",
    "unknown": "seen bad first among what was watched; NANLOG_ORIGIN=1 looks at all that a decision needs",
}


class Glimpse:
    """Stands where an OriginFinder would, without its calls and tokens."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._steps = 0
        self.origin: dict[str, Any] | None = None
        self.expected: dict[str, dict[str, Any]] = {}

    def step(self, trace: StepTrace) -> bool:
        """Take in a step; returns whether it holds the first NaN or Inf."""
        if self.origin is not None:
            return False
        self._steps += 1
        for index in trace.bad:
            seen = trace.observations[index]
            if not (seen.stats.nan_count or seen.stats.inf_count):
                continue
            # What a mask looks like, when what comes after it cannot be seen.
            if seen.site.direction not in ("fwd", "param") or not seen.stats.only_negative_infinite:
                self.origin = self._decide(trace, index, seen)
                return True
        return False

    def _decide(self, trace: StepTrace, index: int, seen: Observation) -> dict[str, Any]:
        site = seen.site
        stage = "unknown"
        missing: list[str] = []
        if site.direction == "pipeline":
            missing = ["where the batch enters the model (origin: true)"]
            if seen.moment.phase != "forward" or not seen.moment.checkpoint:
                stage, missing = "data", []
        elif site.role in ("weight", "bias"):
            missing = ["the parameter before the step", "its gradient"]
            if self._steps == 1:
                stage, missing = "parameter", []
        elif site.role == "act":
            own = [earlier for earlier in trace.observations[:index] if earlier.site.layer == site.layer]
            read = {earlier.site.param for earlier in own if earlier.site.direction == "param"}
            inputs = [earlier for earlier in own if earlier.site.role == "input"]
            if not inputs:
                missing.append(f"the inputs of {site.layer}")
            elif any(given.reduced is not None and given.stats.inf_count for given in inputs):
                missing.append(f"where the -Inf in the input of {site.layer} come from")
            if site.num_values is None:
                missing.append(f"the parts of {site.layer}")
            elif len(read) < site.num_values:
                missing.append(f"all parameters and buffers of {site.layer}")
            stage = "unknown" if missing else "forward"
        elif site.role == "input":
            missing = [f"the modules that run before {site.layer}"]
        else:
            missing = ["the gradients that came in from the modules behind"]
        return {
            **place_of(trace.step, self._rank, seen),
            **trace.evaluation_fields(),
            "stage": stage,
            "not_captured": missing,
            "reason": _REASONS[stage],
        }
