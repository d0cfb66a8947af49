"""What the time of one step went into: nanoseconds by phase, disjoint."""

from __future__ import annotations

from collections.abc import Iterable

from aorta_collectors.numerics.engine.anatomy import EMBED, LM_HEAD, NORM, TRANSFORMER_BLOCK
from aorta_collectors.numerics.engine.timeline import Source
from aorta_collectors.numerics.spans.span import PHASES

_FORWARD = {EMBED: "embed", NORM: "norm_lm", LM_HEAD: "norm_lm"}
_BACKWARD = {EMBED: "embed_bwd", NORM: "norm_bwd", LM_HEAD: "lm_bwd", TRANSFORMER_BLOCK: "blk_bwd"}


class StepPhases:
    """Adds up what the engine sees of a step. All times are nanoseconds, without what observing took."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        # Whole forward and backward passes: from when to when.
        self._passes: list[tuple[str, int, int]] = []

    def add(self, phase: str, own_ns: int) -> None:
        self._times[phase] = self._times.get(phase, 0) + max(0, own_ns)

    def forward(self, start_ns: int, end_ns: int, own_ns: int) -> None:
        """A model's call, that no other encloses, has ended."""
        self._passes.append(("forward", start_ns, end_ns))
        self.add("forward", own_ns)

    def backward(self, start_ns: int, end_ns: int, own_ns: int) -> None:
        """A backward pass has ended."""
        self._passes.append(("backward", start_ns, end_ns))
        self.add("backward", own_ns)

    def module_forward(self, step_name: str, own_ns: int) -> None:
        """A named module's call has ended, inside of a model's."""
        if step_name in _FORWARD:
            self.add(_FORWARD[step_name], own_ns)
            self._times["forward"] = self._times.get("forward", 0) - own_ns

    def module_backward(self, step_name: str, own_ns: int) -> None:
        """A named module's backward has ended, inside of a backward pass."""
        if step_name in _BACKWARD:
            self.add(_BACKWARD[step_name], own_ns)
            self._times["backward"] = self._times.get("backward", 0) - own_ns

    def take(self, sources: Iterable[Source]) -> dict[str, int]:
        """The phases of the step that is over, in their order; what comes belongs to the next one."""
        fetches = [("data", source.start_ns, source.end_ns) for source in sources if source.phase == "data"]
        for source in sources:
            self.add(source.phase, source.own_ns)
            around = self._passes if source.phase == "data" else [*self._passes, *fetches]
            for phase, start_ns, end_ns in around:
                if start_ns <= source.start_ns < end_ns:  # such as a transfer that the data loader makes
                    self._times[phase] -= source.own_ns
                    break
        times, self._times, self._passes = self._times, {}, []
        return {phase: max(0, times[phase]) for phase in PHASES if phase in times}
