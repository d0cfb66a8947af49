"""The observer: armed in a process, it finds models, hooks them, and hands a sink what it saw, step by step.

A step is one call of the root (`clock`). The observed program must not notice: no exception leaves a hook, no random
number is drawn, no gradient is changed. What goes wrong inside a hook is counted in `errors`, its first message kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from aorta_collectors.observe.called import Kwargs
from aorta_collectors.observe.compiling.inside import InsideWatch
from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.delivery import Delivery
from aorta_collectors.observe.device.graphs import GraphWatch
from aorta_collectors.observe.device.rows import DeviceRows
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.followed.following import Following
from aorta_collectors.observe.forks import Forks
from aorta_collectors.observe.graphed import GraphSteps
from aorta_collectors.observe.lifecycle.models import Models
from aorta_collectors.observe.lifecycle.watching import Watching
from aorta_collectors.observe.limits import Ranges
from aorta_collectors.observe.observation import Moment, Moments, Sink, Site
from aorta_collectors.observe.reader import Reader
from aorta_collectors.observe.recorded import RecordedRoots
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.steps import Steps
from aorta_collectors.observe.trace import CallTrace, Mark, Token
from aorta_collectors.observe.training import TrainingWatch

# Tensors of one step; a program that calls its model once and then runs backward for ever makes more.
_MOST_PENDING = 100_000


class Observer(Watching):
    """Watches the models of this process between `arm` and `disarm`; both may be called many times.

    Args:
        sink: Where observations go.
        log: Where to say, once, what cannot be done as it was asked.
        rows: Where tensors on devices are reduced; another one in tests.
    """

    def __init__(
        self,
        request: Request,
        sink: Sink,
        log: Callable[[str], None] = lambda message: None,
        rows: DeviceRows | None = None,
    ) -> None:
        self._forks = Forks(sink.forked)
        self._failures = Failures()
        self.failed, self.guarded = self._failures.add, self._failures.guarded
        self._request = request
        self.num_groups = len(request.groups)
        self._sink = sink
        self.cost = Cost()
        self.timed = partial(self.cost.timed, self.guarded)
        self.moments = Moments()
        self.following = Following(
            request.follows,
            self,
            most=request.follow_most,
            sparse=request.sparse,
            sparse_heavy=request.sparse_heavy,
            log=log,
        )
        self._ranges = Ranges(request.bounds)
        rows = rows or DeviceRows(log)
        self.reader = Reader(
            request.threshold,
            headroom=request.headroom,
            addresses=request.addresses,
            locate=request.locate,
            moments=request.moments,
            keep=request.keep_bad,
            rows=rows,
        )
        self.observe = self.reader.observe
        self.training = TrainingWatch(request, self, lambda: self.roots, self._gradient_arrived)
        self.calls_traced, self._inside = None, None
        if request.origin:
            self.calls_traced = CallTrace(self.training.gradient_of_token)
            self._inside = InsideWatch(self.calls_traced, lambda module: self._models.calls.path_of(module), self)
        self._models: Models[RecordedRoots] = Models(
            entered=partial(self.guarded, self._enter),
            left=partial(self.guarded, self.following.left),
            compiled_called=self._compiled_called,
            in_fork=self._close,
            roots=lambda calls, clock: RecordedRoots(
                request,
                self,
                calls,
                clock,
                entries_at=self.following.entries_at,
                observe_gradient=self.training.gradient_of_parameter if request.origin else None,
                attached=sink.attached,
            ),
            cost=self.cost,
            failures=self._failures,
            forks=self._forks,
            inside=self._inside,
        )
        self._clock = self._models.clock
        self.roots: RecordedRoots = self._models.roots
        self._steps = Steps(
            self._clock,
            self.moments,
            self.cost,
            self.reader,
            self.training,
            self.calls_traced,
            self._inside,
            sink,
            Delivery(self.reader, sink.observed, lambda: self.roots.unscanned),
            self._failures,
            batch_id=lambda: self.following.batch_id,
            always_ranged=request.origin,  # what leads to a bad value is told by magnitudes
            is_elsewhere=self._forks.is_here,
        )
        self._graphs = GraphSteps(self._steps)
        self._graph_watch = GraphWatch(rows, self._graphs, self.failed)
        self._armed = False

    # -- lifecycle

    def arm(self) -> None:
        if self._armed:
            return
        self._armed = True
        self.reader.closed = False
        self._forks.start()
        self._models.start()
        self.following.start()
        self.training.start()
        self._graph_watch.start()

    def disarm(self) -> None:
        """Drain the last step and leave no hook behind."""
        if not self._armed:
            return
        if not self.in_forked_child and self.calls_traced is not None:
            # What a hand-written optimizer did to the parameters in the last step shows in no later one.
            for root in self.roots:
                self.guarded(self.read, root.below.last_values())
        self._armed = False
        self.reader.closed = True
        self._models.stop()
        self.following.stop()
        self.training.stop()
        self._graph_watch.stop()
        self._steps.finish()
        if self.calls_traced is not None:
            self.calls_traced.close()

    @property
    def in_forked_child(self) -> bool:
        """Whether this is a fork of the armed process (a data loader's worker): it must not write evidence."""
        return self._forks.is_here()

    # -- roots and steps

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps taken so far."""
        return self.training.num_steps

    def _compiled_called(self, module: nn.Module) -> None:
        self.guarded(self._enter, module, (), lambda: None)
        self.following.left()

    def _gradient_arrived(self, grad: Tensor) -> None:
        if self._inside is not None:
            self._inside.gradient(grad)

    def _close(self) -> None:
        """Nothing is seen in this process, which is a fork."""
        self.reader.closed = True

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        began = perf_counter()
        owner = self.roots.owner_of(module)
        begins = self._clock.begins_step(module, owner)
        if begins and self._graphs.is_capturing:
            self._graphs.model_called()
        elif begins:
            self.cost.hook_s += perf_counter() - began
            self._steps.begin()
            began = perf_counter()
            if self._request.follows:
                self.guarded(self.following.entered, module, args, kwargs() or {})
                self._steps.go_on()
        step = self.moments.step
        if self.calls_traced is not None:
            beside = not begins and not owner.has_parameters
            criterion = beside and self.calls_traced.computes_loss(module, args, kwargs)
            self.calls_traced.outermost(step, criterion=criterion, beside=beside)
        for root in owner.covers:
            if root.changed:
                self.roots.extend(root)
            if root.scanned_step != step:
                root.scanned_step = step
                self.guarded(self.read, root.below.values())
        self.cost.hook_s += perf_counter() - began

    def not_looked_at(self) -> list[str]:
        """What was not looked at for the origin of a bad value: parameters by name, compiled code in words."""
        return [*self.roots.unscanned, *self._models.compiled_code.unseen()]

    def drain_if_long(self, *, is_long: bool) -> None:
        """Hand on what was seen though no step has begun, in a program that calls no model any more."""
        self.moments.optimizer_stepped(self.training.num_steps)
        if is_long or len(self.reader) > _MOST_PENDING:
            self._steps.hand_on_within()

    def read(self, values: Iterable[tuple[Site, Tensor]]) -> None:
        """Look at parameters or their gradients, all at once."""
        self.reader.observe_all(values, self.moments.of(0, False), self.failed)

    # -- observing

    def gradient_read(self, token: Token, index: int | None, grad: Tensor) -> None:
        """Backward has computed the gradient of a tensor that passed between modules, which has been looked at."""
        if index is not None and self.calls_traced is not None:
            self.calls_traced.mark(index, Mark(token=token))
        self._gradient_arrived(grad)

    def moment(self, invocation: int, recompute: bool) -> Moment:
        return self.moments.of(invocation, recompute)

    def bounds_of(self, layer: str) -> tuple[float, float] | None:
        return self._ranges.of(layer)

    @property
    def unmatched_bounds(self) -> list[str]:
        """Patterns of ranges that no name of a layer or a followed tensor contains."""
        return [bound.pattern for bound in self._ranges.unmatched]

    def followed_at(self, layer: str, entries: tuple[int, ...]) -> None:
        self.following.after(layer, entries)
