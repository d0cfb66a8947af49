"""The lifecycle: armed in a process, it finds models and tells a listener of the points in their life, step by step.

A step is one call of the root (`observe.clock`). The observed program must not notice: no exception leaves a hook, no
random number is drawn, no gradient is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from torch import nn

from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.forks import Forks
from aorta_collectors.observe.lifecycle.graphs import GraphPoints
from aorta_collectors.observe.lifecycle.layer_call import LayerCalls
from aorta_collectors.observe.lifecycle.layers import Layers, Names, Wants, parameters_of
from aorta_collectors.observe.lifecycle.listener import GraphListener, Listener
from aorta_collectors.observe.lifecycle.models import Models
from aorta_collectors.observe.lifecycle.telling import Telling
from aorta_collectors.observe.lifecycle.training import TrainingPoints
from aorta_collectors.observe.lifecycle.watching import Watching
from aorta_collectors.observe.root import Root
from aorta_collectors.observe.roots import Roots

ROOT = "(root)"
_MOST_ROOTS = 100
# For a thread that is between two steps: the end of the process must not wait for it for good.
_PATIENCE_S = 10.0


class Lifecycle(Watching):
    """Watches the models of this process between `arm` and `disarm`.

    Args:
        listener: Told of every point.
        wants: Whether calls of a module below a root are told: given its path without what wrappers add, "" for the
            root. Asked once for each, when it is found.
        gradients: Whether gradients of what told layers return are.
        log: Where to say, once, what is not listed.
        forked: Called once in a fork of the process that trains a model.
        graphs: Told of CUDA graphs; without it, what happens while one is captured is not told at all.
        wants_parameters: Likewise, whether the module's own parameters are among those that are told; all are where it
            is not given.

    Attributes:
        cost: What observing takes.
        roots: Labels of the models found, at most 100.
        sees_compiled: Whether somebody else sees calls inside of compiled code, and says so by `seen_inside`.
    """

    def __init__(
        self,
        listener: Listener,
        wants: Wants,
        *,
        gradients: bool,
        log: Callable[[str], None] = lambda message: None,
        forked: Callable[[], None] = lambda: None,
        graphs: GraphListener | None = None,
        wants_parameters: Wants = lambda path, module: True,
    ) -> None:
        self._listener = listener
        self._log = log
        self._failures = Failures()
        self._forks = Forks(forked)
        self.cost = Cost()
        self.roots: list[str] = []
        self.sees_compiled = False
        self._telling = telling = Telling(listener, self._failures, self.cost, gradients=gradients)
        self._names = names = Names()
        self._models: Models[Roots[Layers]] = Models(
            entered=lambda module, args, kwargs: self._enter_guarded(module, is_compiled=False),
            left=telling.forward_left,
            compiled_called=lambda module: self._enter_guarded(module, is_compiled=True),
            in_fork=self._close,
            roots=lambda calls, clock: Roots(
                calls,
                clock,
                below=lambda: Layers(telling, names, wants, wants_parameters),
                is_asked_for=lambda module: False,
                attached=self._attached,
            ),
            cost=self.cost,
            failures=self._failures,
            forks=self._forks,
        )
        parameters = partial(parameters_of, self._models.roots)
        self._training = TrainingPoints(telling, parameters, self._forks.is_here)
        self._graphs = GraphPoints(
            telling,
            self._training,
            graphs,
            self._models.calls.is_running,
            self._begin_step,
            self._forks.is_here,
        )
        self._armed = self._was_armed = False
        # Steps begin one after another, whichever threads call models.
        self._between = threading.RLock()

    # -- from arm to disarm

    def arm(self) -> None:
        if self._armed:
            return
        self._armed = self._was_armed = True
        self._telling.is_closed = False
        self._forks.start()
        self._models.start()
        self._training.start()
        self._graphs.start()

    def disarm(self) -> None:
        """End the last step and leave no hook behind."""
        if not self._armed:
            return
        self._armed = False
        self._models.stop()
        self._training.stop()
        self._graphs.stop()
        if not self.in_forked_child and self._between.acquire(timeout=_PATIENCE_S):
            try:
                self._end_step(is_last=True)
            finally:
                self._between.release()
        self._close()

    def _close(self) -> None:
        self._telling.is_closed = True

    @property
    def in_forked_child(self) -> bool:
        """Whether this is a fork of the armed process (a data loader's worker): it must not write evidence."""
        return self._was_armed and self._forks.is_here()

    # -- what it has seen

    @property
    def is_capturing(self) -> bool:
        """Whether a CUDA graph is captured: hooks run, and nothing is computed."""
        return self._telling.is_capturing

    @property
    def watched_count(self) -> int:
        """Layers of models whose calls are told."""
        return self._names.watched

    @property
    def unseen(self) -> list[str]:
        """Layers among them of which no call was seen."""
        return self._names.not_seen(self._models.roots.unobserved())

    @property
    def opaque(self) -> list[str]:
        """Layers whose calls are not seen, since torch.compile or TorchScript runs them."""
        roots = self._models.roots
        return self._names.not_seen(roots.hidden_names if self.sees_compiled else roots.opaque)

    def fields(self) -> dict[str, Any]:
        """Fields of a summary that are the lifecycle's own."""
        return {
            **self.counted(),
            "optimizer_steps": self._training.num_steps,
            "roots": list(self.roots),
            "watched_count": self.watched_count,
            "called_count": self._telling.called_count,
            "opaque_names": self.opaque,
            "overhead": self.cost.fields(),
        }

    # -- calls that compiled code makes, which hooks do not see

    def meet(self, module: nn.Module) -> None:
        """Know the model that `module` is, or is part of, before its first call."""
        if not self._forks.is_here():
            self._failures.guarded(self._models.roots.owner_of, module)

    def layer_of(self, module: nn.Module) -> str | None:
        """The layer as which calls of a module are to be told; None where they are not, or what it wraps is told."""
        calls = self._models.calls.of(module)
        return calls.own_layer if isinstance(calls, LayerCalls) else None

    def is_whole(self, module: nn.Module) -> bool:
        """Whether it is a model, or what wraps one."""
        return (self._names.known(module) or "").endswith(ROOT)

    @property
    def told_types(self) -> frozenset[type[nn.Module]]:
        """Classes of the modules whose calls are told."""
        return frozenset(self._names.types)

    @property
    def is_silent(self) -> bool:
        """Whether what comes now is told to nobody."""
        return self._telling.is_silent

    def is_running(self, layer: str) -> bool:
        """Whether a call of a layer that hooks see, and tell, is going on in this thread."""
        return any(calls.path == layer for calls in self._telling.running.layers)

    def seen_inside(self, layer: str) -> None:
        """Who asks has seen a call of it."""
        if self._names.seen_inside(layer):
            self._telling.called_count += 1

    # -- models

    def _attached(self, root: Root[Layers]) -> None:
        if root.label in self.roots:
            return
        if len(self.roots) < _MOST_ROOTS:
            self.roots.append(root.label)
            self._telling.tell(self._listener.attached, root.label)
            if len(self.roots) == _MOST_ROOTS:
                self._log(f"WARNING: {_MOST_ROOTS} models; further ones are watched, but not listed")

    # -- calls that no other encloses

    def _enter_guarded(self, module: nn.Module, *, is_compiled: bool) -> None:
        try:
            with self._between:
                self._enter(module, is_compiled)
        except Exception as error:
            self._failures.add(error)

    def _enter(self, module: nn.Module, is_compiled: bool) -> None:
        began = perf_counter()
        telling = self._telling
        telling.after_compiled_forward()
        # What an exception has ended without a word: nothing of a model is running on this thread.
        telling.running.layers.clear()
        telling.running.is_forward = False
        owner = self._models.roots.owner_of(module)
        begins = self._models.clock.begins_step(module, owner)
        for root in owner.covers:
            root.below.caller = threading.get_ident()
            if root.changed:
                self._models.roots.extend(root)
        is_model = owner.has_parameters or owner.watched_anything
        self.cost.hook_s += perf_counter() - began
        if telling.is_capturing:
            if is_model:
                self._graphs.model_called()
        elif begins:
            self._begin_step()
        if is_model and not telling.is_silent:
            self.cost.timed(lambda: telling.before_forward(is_compiled=is_compiled))

    # -- steps

    def _begin_step(self) -> None:
        """The step at hand ends, and the next one begins."""
        with self._between:
            self._end_step(is_last=False)
            self._training.begin_step()
            self._models.clock.begin()
            self._telling.step = self.step
            self.cost.timed(self._failures.guarded, self._listener.step_began, self.step)

    def _end_step(self, *, is_last: bool) -> None:
        now = perf_counter()
        if self._telling.step:
            self._telling.after_compiled_forward()
            self._telling.tell(self._listener.step_ended, self._telling.step, is_last)
            self.cost.drained(perf_counter() - now)
        if is_last:
            self._telling.step = 0
            self.cost.finish(now)
        else:
            self.cost.end_step(now)
