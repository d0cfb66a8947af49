"""The observer: armed in a process, it finds models, hooks them, and hands a sink what it saw, step by step.

A step is one call of the root (`clock`). The observed program must not notice: no exception leaves a hook, no random
number is drawn, no gradient is changed. What goes wrong inside a hook is counted in `errors`, its first message kept.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aorta_collectors.observe.builders import BuildWatch
from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.observation import Observation, Sink, Site
from aorta_collectors.observe.reduce import read_rows, readable, reduce_later, reduce_now
from aorta_collectors.observe.root import Root
from aorta_collectors.observe.watch import WatchGroup

_PARAM_NUMEL = 50_000_000
_NAMES = 1000  # of layers of models that are gone


class Observer:
    """Watches the models of this process between `arm` and `disarm`; both may be called many times.

    Args:
        groups: What to watch.
        sink: Where observations go.
        threshold: |x| above it counts as huge.
        max_param_numel: Parameters with more elements are not scanned, and listed as skipped.
    """

    def __init__(
        self,
        groups: tuple[WatchGroup, ...],
        sink: Sink,
        *,
        threshold: float = 1e10,
        max_param_numel: int = _PARAM_NUMEL,
    ) -> None:
        self._groups = groups
        self.num_groups = len(groups)
        self._sink = sink
        self._threshold = threshold
        self._max_param_numel = max_param_numel
        self._clock = StepClock()
        self._calls = ModuleCalls(self._entered, self._is_part, self._met)
        self._builds = BuildWatch(self._built, self._compiled)
        self._optimizer_hook: Any = None
        self._registration_hooks: list[Any] = []
        self._last_built = 0
        self._armed = False
        self._pid = 0
        self._pending: list[Observation] = []
        self._roots: list[Root] = []
        self._owners: weakref.WeakKeyDictionary[nn.Module, Root] = weakref.WeakKeyDictionary()
        self._roots_found = 0
        self.calls = 0
        self.tensors_observed = 0
        self.tensors_unreadable = 0
        self.grads_observed = 0
        self.optimizer_steps = 0
        self.modules_built = 0
        self.groups_matched: set[int] = set()
        self._unobserved: list[str] = []
        self._opaque: dict[str, None] = {}
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
        self._registration_hooks = [
            nn.modules.module.register_module_module_registration_hook(self._part_registered),
            nn.modules.module.register_module_parameter_registration_hook(self._registered),
        ]
        if any({"wgrad", "bgrad"} & set(group.channels) for group in self._groups):
            self._optimizer_hook = register_optimizer_step_pre_hook(self._optimizer_step)

    def disarm(self) -> None:
        """Drain the last step and leave no hook behind."""
        if not self._armed:
            return
        self._armed = False
        self._unobserved += self._calls.unseen()
        self._calls.stop()
        self._builds.stop()
        for hook in (*self._registration_hooks, self._optimizer_hook):
            if hook is not None:
                hook.remove()
        self._registration_hooks, self._optimizer_hook = [], None
        for root in self._roots:
            root.close()
        self._roots.clear()
        self._owners.clear()
        self._clock.forget()
        self._guarded(self._drain)

    @property
    def in_forked_child(self) -> bool:
        """Whether this is a fork of the armed process (a data loader's worker): it must not write evidence."""
        return os.getpid() != self._pid

    # -- finding roots and counting steps

    @property
    def step(self) -> int:
        """Steps begun so far."""
        return self._clock.step

    def _registered(self, module: nn.Module, _name: str, _part: Any) -> None:
        """A module got a part or a parameter; those of one module usually come in a row."""
        if id(module) != self._last_built:
            self._last_built = id(module)
            self.modules_built += 1

    def _part_registered(self, module: nn.Module, name: str, part: nn.Module | None) -> None:
        self._registered(module, name, part)
        owner = self._owners.get(module)
        if owner is not None:
            owner.changed = True
        if name == "_orig_mod" and part is not None:
            self._compiled(part)  # torch.compile(part) wraps it so

    def _compiled(self, module: nn.Module) -> None:
        """torch.compile has taken a module over; what is watched inside is not seen from now on."""
        for part in module.modules():
            watched = self._calls.of(part)
            if watched is not None:
                self._opaque[watched.path] = None

    def _is_part(self, module: nn.Module) -> bool:
        owner = self._owners.get(module)
        return owner is not None and not owner.is_root(module)

    def _built(self, module: nn.Module) -> None:
        if not self.in_forked_child:
            self._guarded(self._attach, module)

    def _met(self, module: nn.Module, running: nn.Module) -> None:
        """A module that no root has is called inside `running`, into which it may have been put just now."""
        owner = self._owners.get(running)
        if module not in self._owners and owner is not None and self._clock.step >= owner.next_look:
            self._guarded(self._extend, owner)

    def _entered(self, module: nn.Module) -> None:
        if self.in_forked_child:
            self._guarded(self._report_fork, module)
        # A parametrized layer computes its weight by calling a module, on its own even while it is built.
        elif not isinstance(module, ParametrizationList):
            self._guarded(self._enter, module)

    def _enter(self, module: nn.Module) -> None:
        owner = self._owners.get(module) or self._attach(module)
        if self._clock.begins_step(module, owner):
            self._guarded(self._drain)
            self._clock.step += 1
            self._guarded(self._sink.entered, self._clock.step)
        for root in owner.covers:
            if root.changed:
                self._extend(root)
            if root.scanned_step != self._clock.step:
                root.scanned_step = self._clock.step
                for site, param in root.values():
                    self._guarded(self.observe, site, param)

    def _attach(self, module: nn.Module) -> Root:
        """Watch what is to be watched below `module` and is not yet; returns the root that owns it."""
        if module in self._owners:
            return self._owners[module]
        if isinstance(module, nn.parallel.DistributedDataParallel) and module.module in self._owners:
            # DistributedModelParallel wraps dense parts of a model that has been attached already.
            return self._owners.setdefault(module, self._owners[module.module])
        number = self._roots_found + 1
        label = type(module).__name__ + (f"#{number}" if number > 1 else "")
        prefix = f"{label}." if number > 1 else ""
        root = Root(label, module, self._groups, prefix, self._max_param_numel)
        inner = {id(found): found for part in module.modules() if (found := self._owners.get(part)) is not None}
        root.covers.extend(inner.values())
        self._extend(root)
        # A program may make a loss module, or a whole model, anew in each step: only living roots are kept.
        if root.has_parameters or root.watched_anything:
            self._roots_found = number
            self._roots = [*(earlier for earlier in self._roots if earlier.is_alive), root]
            self._unobserved += self._calls.forget_dead()[: _NAMES - len(self._unobserved)]
        return root

    def _extend(self, root: Root) -> None:
        before = root.num_watched
        if not root.extend(self, self._calls, self._owners):
            # Modules that a forward makes for itself are no part of the model: look ever more rarely.
            root.next_look = 2 * self._clock.step
        self.groups_matched |= root.groups_matched
        for part in root.opaque_parts():
            self._compiled(part)
        if root.is_scripted and root.has_parameters:
            self._opaque[root.label] = None
        if root.num_watched != before and (root.has_parameters or root.watched_anything):
            self._sink.attached(root.info())

    def _report_fork(self, module: nn.Module) -> None:
        """A forked child that trains is a hole in the evidence; a data loader's worker is none."""
        if not self._fork_reported and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
            self._fork_reported = True
            self._sink.forked()

    def unobserved(self) -> tuple[list[str], list[str]]:
        """(watched layers whose calls were never seen, layers that torch.compile or TorchScript runs unseen).

        A layer may have been seen in an eager call and then be compiled.
        """
        return [*self._unobserved, *self._calls.unseen()], list(self._opaque)

    # -- observing

    def observe(self, site: Site, tensor: Tensor) -> None:
        """Look at `tensor` now. On an accelerator nothing is waited for; the row is read when the step is drained."""
        if not self._armed or self.in_forked_child:
            return  # the backward pass of a step that ended after disarming
        plain = readable(tensor)
        if plain is None:
            self.tensors_unreadable += 1
            return
        if site.is_flow:
            self.calls += 1
        low = high = 0.0
        reduced: Any
        if plain.device.type == "cpu":
            low, high, reduced = reduce_now(plain, self._threshold)
        else:
            reduced = reduce_later(plain, self._threshold)
        self._pending.append(
            Observation(
                site, tensor.shape, tensor.dtype, self.calls, time.monotonic(), plain.numel(), low, high, reduced
            )
        )

    def observe_gradient(self, site: Site, grad: Tensor) -> None:
        """A tensor hook: sees a gradient, returns None so that it stays what it is."""
        self._guarded(self.observe, site, grad)

    def _optimizer_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._guarded(self._read_gradients, optimizer)

    def _read_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer_steps += 1
        for group in optimizer.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                for root in self._roots:
                    site = root.gradient_site(param)
                    if site is not None:
                        self._guarded(self.observe, site, grad)
                        self.grads_observed += 1
                        break

    def _drain(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        self.tensors_observed += len(pending)
        rows = [(index, seen) for index, seen in enumerate(pending) if isinstance(seen.reduced, Tensor)]
        if rows:
            stats = read_rows([(seen.numel, seen.reduced) for _, seen in rows])  # type: ignore[misc]
            for (index, seen), entry in zip(rows, stats, strict=True):
                pending[index] = seen._replace(reduced=entry)
        self._sink.observed(self._clock.step, pending)

    # -- failing softly

    def _guarded(self, function: Any, *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Count an error of ours. The program goes on as if nothing had been there."""
        self.errors += 1
        if self.first_error is None:
            self.first_error = f"{type(error).__name__}: {error}"
