"""The observer: armed in a process, it finds models, hooks them, and hands a sink what it saw, step by step.

A step is one call of the root (`clock`). The observed program must not notice: no exception leaves a hook, no random
number is drawn, no gradient is changed. What goes wrong inside a hook is counted in `errors`, its first message kept.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from aorta_collectors.observe.builders import BuildWatch
from aorta_collectors.observe.calls import Kwargs, ModuleCalls
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.compiling.inside import InsideWatch
from aorta_collectors.observe.followed.following import Following
from aorta_collectors.observe.followed.side_stream import SideStream
from aorta_collectors.observe.limits import Ranges
from aorta_collectors.observe.observation import Moment, Sink, Site
from aorta_collectors.observe.reader import Reader
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.roots import Roots
from aorta_collectors.observe.tensors import tensors_of_call
from aorta_collectors.observe.trace import CallTrace, StepTrace
from aorta_collectors.observe.training import TrainingWatch

# Tensors of one step; a program that calls its model once and then runs backward for ever makes more.
_MOST_PENDING = 100_000


class Observer:
    """Watches the models of this process between `arm` and `disarm`; both may be called many times.

    Args:
        request: What to look at.
        sink: Where observations go.
        log: Where to say, once, what cannot be done as it was asked.
    """

    def __init__(self, request: Request, sink: Sink, log: Callable[[str], None] = lambda message: None) -> None:
        self._request = request
        self.num_groups = len(request.groups)
        self._sink = sink
        self._clock = StepClock()
        self._calls = ModuleCalls(self._entered, self._left, self._is_part, self._met)
        self._builds = BuildWatch(self._built, self._compiled)
        self._ranges = Ranges(request.bounds)
        self.reader = Reader(
            request.threshold,
            headroom=request.headroom,
            addresses=request.addresses,
            locate=request.locate,
            keep=request.keep_bad,
        )
        self.following = Following(
            request.follows,
            self,
            most=request.follow_most,
            sparse=request.sparse,
            sparse_heavy=request.sparse_heavy,
            log=log,
        )
        self.training = TrainingWatch(request, self, lambda: self.roots, self._gradient_arrived)
        self.calls_traced = CallTrace(self.training.gradient_of_token) if request.origin else None
        self._inside = (
            InsideWatch(self.calls_traced, self._path_of, self.failed) if self.calls_traced is not None else None
        )
        self.roots: Roots = Roots(
            request,
            self,
            self._calls,
            self._clock,
            entries_at=self.following.entries_at,
            observe_gradient=self.training.gradient_of_parameter if request.origin else None,
            attached=sink.attached,
        )
        self._armed = False
        self._pid = 0
        self._moments: dict[tuple[int, bool, int], Moment] = {}
        self._fork_reported = False
        self.errors = 0
        self.first_error: str | None = None

    # -- lifecycle

    def arm(self) -> None:
        if self._armed:
            return
        self._armed = True
        self._pid = os.getpid()
        self._calls.start()
        self._builds.start()
        self.roots.start()
        self.following.start()
        self.training.start()
        if self._inside is not None:
            self._inside.start()

    def disarm(self) -> None:
        """Drain the last step and leave no hook behind."""
        if not self._armed:
            return
        if not self.in_forked_child and self.calls_traced is not None:
            # What a hand-written optimizer did to the parameters in the last step shows in no later one.
            for root in self.roots:
                self.guarded(self._read, root.last_values())
        self._armed = False
        self.roots.stop()
        self._calls.stop()
        self._builds.stop()
        self.following.stop()
        self.training.stop()
        if self._inside is not None:
            self._inside.stop()
        self._clock.forget()
        self.guarded(self._drain)
        if self.calls_traced is not None:
            self.calls_traced.close()

    @property
    def in_forked_child(self) -> bool:
        """Whether this is a fork of the armed process (a data loader's worker): it must not write evidence."""
        return os.getpid() != self._pid

    # -- roots and steps

    @property
    def step(self) -> int:
        """Steps begun so far."""
        return self._clock.step

    def _is_part(self, module: nn.Module) -> bool:
        return self.roots.is_part(module)

    def _met(self, module: nn.Module, running: nn.Module) -> None:
        self.guarded(self.roots.met, module, running)

    def _built(self, module: nn.Module) -> None:
        if not self.in_forked_child:
            self.guarded(self.roots.owner_of, module)

    def _compiled(self, module: nn.Module) -> None:
        self.guarded(self.roots.compiled, module)
        self.guarded(self._calls.watch_compiled, module)

    def _path_of(self, module: nn.Module) -> str | None:
        watched = self._calls.of(module)
        return watched.module_path if watched is not None else None

    def _gradient_arrived(self, grad: Tensor) -> None:
        if self._inside is not None:
            self._inside.gradient(grad)

    def _entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        if self.in_forked_child:
            self.guarded(self._report_fork, module)
        # A parametrized layer computes its weight by calling a module, on its own even while it is built.
        elif not isinstance(module, ParametrizationList):
            self.guarded(self._enter, module, args, kwargs)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        owner = self.roots.owner_of(module)
        begins = self._clock.begins_step(module, owner)
        if begins:
            self.guarded(self._drain)
            self._clock.step += 1
            self.guarded(self._sink.entered, self._clock.step)
            if self._request.follows:
                self.guarded(self.following.entered, module, args, kwargs() or {})
            self._moments.clear()
            self.training.begin_step()
        if self.calls_traced is not None:
            beside = not begins and not owner.has_parameters
            criterion = beside and self._computes_loss(module, args, kwargs)
            self.calls_traced.outermost(self._clock.step, criterion=criterion, beside=beside)
        for root in owner.covers:
            if root.changed:
                self.roots.extend(root)
            if root.scanned_step != self._clock.step:
                root.scanned_step = self._clock.step
                self._read(root.values())

    def _computes_loss(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> bool:
        """Of a module without parameters, called beside the model: whether it takes what the model gave out."""
        trace = self.calls_traced
        if isinstance(module, nn.modules.loss._Loss) or trace is None:
            return True
        return any(
            tensor.grad_fn is not None or trace.is_given_out(tensor) for _, tensor in tensors_of_call(args, kwargs())
        )

    def not_looked_at(self) -> list[str]:
        """What was not looked at for the origin of a bad value: parameters by name, compiled code in words."""
        return [*self.roots.unscanned, *(self._inside.unseen() if self._inside is not None else [])]

    def drain_if_long(self, *, is_long: bool) -> None:
        """Hand on what was seen though no step has begun, in a program that calls no model any more."""
        if is_long or len(self.reader) > _MOST_PENDING:
            self.guarded(self._drain)

    def _left(self) -> None:
        self.following.left()

    def _read(self, values: Iterable[tuple[Site, Tensor]]) -> None:
        moment = self.moment(0, False)
        for site, tensor in values:
            self.guarded(self.observe, site, tensor, moment)

    def _report_fork(self, module: nn.Module) -> None:
        """A forked child that trains is a hole in the evidence; a data loader's worker is none."""
        if not self._fork_reported and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
            self._fork_reported = True
            self._sink.forked()

    # -- observing

    def observe(
        self,
        site: Site,
        tensor: Tensor,
        moment: Moment,
        extra: Mapping[str, Any] | None = None,
        side: SideStream | None = None,
    ) -> int | None:
        """Look at `tensor` now; returns its index within the step, None if it was passed over."""
        if not self._armed or self.in_forked_child:
            return None  # the backward pass of a step that ended after disarming
        if site.direction == "pipeline":
            moment = moment._replace(optimizer_step=self.training.num_steps)
        return self.reader.observe(site, tensor, moment, extra, side)

    def may_be_masked(self, index: int) -> bool:
        """Whether an observation of this step shows -Inf as masks do, or cannot be known yet."""
        return self.reader.may_be_masked(index)

    def passed_over(self, layer: str, reason: str) -> None:
        """Something of a layer was not looked at."""
        self.reader.pass_over(layer, reason)

    def moment(self, invocation: int, recompute: bool) -> Moment:
        steps = self.training.num_steps
        key = (invocation, recompute, steps)
        moment = self._moments.get(key)
        if moment is None:
            batch = self.following.batch_id
            moment = self._moments[key] = Moment("forward", batch, "", invocation, recompute, steps)
        return moment

    def bounds_of(self, layer: str) -> tuple[float, float] | None:
        return self._ranges.of(layer)

    @property
    def unmatched_bounds(self) -> list[str]:
        """Patterns of ranges that no name of a layer or a followed tensor contains."""
        return [bound.pattern for bound in self._ranges.unmatched]

    def followed_at(self, layer: str, entries: tuple[int, ...]) -> None:
        self.following.after(layer, entries)

    def _drain(self) -> None:
        observations, tensors = self.reader.drain()
        marks = self.calls_traced.take_marks() if self.calls_traced is not None else {}
        outcome = self.training.take()
        inside = self._inside.backward if self._inside is not None else None
        if self._inside is not None:
            self._inside.begin_step()
        if observations:
            self._sink.observed(
                StepTrace(self._clock.step, observations, marks, outcome, tensors, inside, self.roots.unscanned)
            )

    # -- failing softly

    def guarded(self, function: Any, *args: Any) -> None:
        """Call `function`, whose errors are ours and not the program's."""
        try:
            function(*args)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Count an error of ours. The program goes on as if nothing had been there."""
        self.errors += 1
        if self.first_error is None:
            place = traceback.extract_tb(error.__traceback__)[-1:]
            where = "".join(f" ({os.path.basename(frame.filename)}:{frame.lineno})" for frame in place)
            self.first_error = f"{type(error).__name__}: {error}{where}"
