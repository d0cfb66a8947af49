"""The engine: armed in a process, it finds models, times what they do, tells parts of it, and hands on each step.

A step is one call of the root (`observe.clock`). The observed program must not notice: no exception leaves a hook but
the one that ends the program on purpose, no random number is drawn, no gradient is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter, perf_counter_ns
from typing import Any

from torch import nn

from aorta_collectors.numerics.brick import Timing
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.found import FoundBricks
from aorta_collectors.numerics.engine.hooked import HookedBrick, Hub
from aorta_collectors.numerics.engine.passes import BackwardPasses, Call, Wait
from aorta_collectors.numerics.engine.phases import StepPhases
from aorta_collectors.numerics.engine.steps import Sink, Steps
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.engine.told import Told
from aorta_collectors.numerics.engine.training import TrainingSpans
from aorta_collectors.numerics.part import Part
from aorta_collectors.observe.called import Kwargs
from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.forks import Forks
from aorta_collectors.observe.lifecycle.models import Models
from aorta_collectors.observe.lifecycle.watching import Watching
from aorta_collectors.observe.root import Root
from aorta_collectors.observe.roots import Roots

_MOST_ROOTS = 100
# For a thread that waits for a device between two steps: the end of the process must not wait for it for good.
_PATIENCE_S = 10.0


class Engine(Watching):
    """Watches the models of this process between `arm` and `disarm`.

    Args:
        parts: Told of all that happens, in this order.
        timeline: Where spans go.
        log: Where to say, once, what cannot be done as it was asked.
    """

    def __init__(
        self,
        config: Config,
        parts: Sequence[Part],
        timeline: Timeline,
        sink: Sink,
        log: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._config = config
        self._timeline = timeline
        self._sink = sink
        self._log = log
        self._failures = Failures()
        self._forks = Forks(sink.forked)
        self._told = Told(parts, self._failures)
        self.cost = Cost()
        phases = StepPhases()
        timings: list[Timing] | None = [] if config.profiles else None
        wait = Wait(timeline) if config.profile == "immediate" else None
        self._passes = passes = BackwardPasses(timeline, phases, self._told, self._failures, timings, wait)
        self._models: Models[Roots[FoundBricks]] = Models(
            entered=self._entered,
            left=self._left,
            compiled_called=lambda module: self._entered(module, (), lambda: None),
            in_fork=self._close,
            roots=lambda calls, clock: Roots(
                calls,
                clock,
                below=lambda: self._found,
                is_asked_for=lambda module: False,
                attached=self._attached,
            ),
            cost=timeline,
            failures=self._failures,
            forks=self._forks,
        )
        self._clock, self._roots = self._models.clock, self._models.roots
        self._steps = Steps(self._clock, timeline, phases, timings, self._told, sink, self.cost, self._failures)
        self._training = TrainingSpans(
            timeline,
            self._steps,
            phases,
            passes,
            self._told,
            self._failures,
            wait,
            self._models.calls.is_running,
            self._forks.is_here,
        )
        self._hub = hub = Hub(
            timeline,
            phases,
            self._told,
            self._failures,
            passes,
            timings,
            wait,
            ran=self._training.forward_ended,
            called=self._called_first,
        )
        self._found = FoundBricks(config, hub)
        self.roots: list[str] = []
        self.called_count = 0
        self._armed = self._was_armed = False
        # Steps begin one after another, whichever threads call models; between two there is no step.
        self._between = threading.RLock()

    # -- lifecycle

    def arm(self) -> None:
        """Observe from now on; where nothing was asked for, not a hook is set."""
        if self._armed or self._config.asks_for_nothing:
            return
        self._armed = self._was_armed = True
        self._forks.start()
        self._told.start()
        self._models.start()
        self._training.start()

    def disarm(self) -> None:
        """End the last step and leave no hook behind."""
        if not self._armed:
            return
        self._armed = False
        self._models.stop()
        self._training.stop()
        if not self.in_forked_child:
            self._finish()
            self._told.stop()
            if self.step and self.unmatched_steps:
                self._log(f"WARNING: steps: nothing that ran is called {', '.join(self.unmatched_steps)}")

    def _finish(self) -> None:
        if self._between.acquire(timeout=_PATIENCE_S):
            try:
                self._timeline.end_all()
                self._steps.finish()
            finally:
                self._between.release()

    @property
    def in_forked_child(self) -> bool:
        """Whether this is a fork of the armed process (a data loader's worker): it must not write evidence."""
        return self._was_armed and self._forks.is_here()

    # -- what it has seen

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps taken so far."""
        return self._training.num_steps

    @property
    def watched_count(self) -> int:
        """Modules whose calls were seen or waited for."""
        return self._found.watched

    @property
    def opaque(self) -> list[str]:
        """Layers whose calls are not seen, since torch.compile or TorchScript runs them."""
        return self._roots.opaque

    @property
    def unmatched_steps(self) -> list[str]:
        """Words of `steps` that match nothing that has run so far."""
        return self._timeline.filter.unmatched

    def fields(self) -> dict[str, Any]:
        """Fields of the summary that are the engine's own."""
        return {
            **self.counted(),
            "optimizer_steps": self.optimizer_steps,
            "roots": list(self.roots),
            "watched_count": self.watched_count,
            "called_count": self.called_count,
            "unmatched_steps": self.unmatched_steps,
            "opaque_names": self.opaque,
            "overhead": self.cost.fields(),
            "anatomy": {name: list(layers) for name, layers in self._found.anatomy.items()},
            "trace_steps": self._timeline.trace_steps.fields(),
        }

    # -- models

    def _attached(self, root: Root[FoundBricks]) -> None:
        if root.label not in self.roots and len(self.roots) < _MOST_ROOTS:
            self.roots.append(root.label)
            self._failures.guarded(self._sink.attached, root.label)

    def _called_first(self, hooked: HookedBrick) -> None:
        self.called_count += hooked.asked
        self._timeline.filter.ran(hooked.words)

    # -- calls that no other encloses

    def _close(self) -> None:
        """Nothing is seen in this process, which is a fork."""
        self._hub.is_closed = True
        self._passes.stop()

    def _entered(self, module: nn.Module, _args: tuple[Any, ...], _kwargs: Kwargs) -> None:
        if self._told.stopped is not None:
            raise self._told.stopped
        try:
            with self._between:
                self._enter(module)
        except Exception as error:
            self._failures.add(error)

    def _enter(self, module: nn.Module) -> None:
        timeline = self._timeline
        began = perf_counter()
        # What an exception has ended without a word: nothing of a model is running on this thread.
        for opened in [opened for opened in timeline.stack() if type(opened) is Call]:
            timeline.remove(opened, perf_counter_ns())
        owner = self._roots.owner_of(module)
        begins = self._clock.begins_step(module, owner)
        for root in owner.covers:
            if root.changed:
                self._roots.extend(root)
        timeline.hook_s += perf_counter() - began
        if begins:
            self._training.begin_step()
            self._steps.begin()  # adds its own

    def _left(self) -> None:
        if self._told.model_left and not self.in_forked_child:
            self._told.tell(self._told.model_left)
