"""Brick profiling and graph replay exclude each other: what a CUDA graph replays, no module calls.

`torch.cuda.graph`, `make_graphed_callables` and what torch.compile records (mode "reduce-overhead") are all replayed
through one method of torch.cuda.CUDAGraph. From the first replay on no brick is timed, and the summary says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.observe.around import in_place_of

_REPLAY = "replay"


class GraphExclusion(Part):
    """Stands around `replay` while bricks are profiled. Comes before the parts that read timings.

    Args:
        warn: Told once.
        graph: The class of graphs.

    Attributes:
        reason: Why bricks are not timed, or no longer; None as long as they are.
    """

    def __init__(self, warn: Callable[[str], None], graph: type[Any] = torch.cuda.CUDAGraph) -> None:
        self._warn = warn
        self._graph = graph
        self._step = 0
        self._original: Any = None
        self._ours: Any = None
        self.reason: str | None = None

    def start(self) -> None:
        self._original = original = getattr(self._graph, _REPLAY)

        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self.reason is None and self._ours is not None:
                self._exclude()
            return original(graph, *args, **kwargs)

        self._ours = in_place_of(original, replay)
        setattr(self._graph, _REPLAY, self._ours)

    def stop(self) -> None:
        # Somebody may have wrapped it after us: theirs stays, and ours falls silent.
        if vars(self._graph).get(_REPLAY) is self._ours:
            setattr(self._graph, _REPLAY, self._original)
        self._ours = None

    def _exclude(self) -> None:
        when = f"before step {self._step + 1}" if self._step == 0 else f"in step {self._step}"
        self.reason = (
            f"a CUDA graph was replayed {when}: the modules inside it are not called, and cannot be timed. No brick is "
            "timed from that step on; run without CUDA graphs to profile bricks"
        )
        self._warn(self.reason)

    def step_began(self, step: int) -> None:
        self._step = step

    def step_ended(self, trace: StepTrace) -> None:
        if self.reason is not None:
            trace.timings.clear()

    def fields(self) -> Mapping[str, Any]:
        return {"profile_excluded": self.reason}
