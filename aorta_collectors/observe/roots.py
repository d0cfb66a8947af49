"""Finding the models of a program: at their first call, when a wrapper builds one, when parts are put into one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.observation import RootInfo, Site
from aorta_collectors.observe.parameters import ParameterPlan
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.root import Root
from aorta_collectors.observe.watch import match
from aorta_collectors.observe.watched import Eye

_NAMES = 1000  # of layers of models that are gone


class Roots:
    """The roots of this process, and which module belongs to which.

    Args:
        entries_at: Which followed tensors are read again after calls of a module.
        observe_gradient: Where gradients of parameters go if the origin of a bad value is wanted.
        attached: Called when modules of a root are watched anew.

    Attributes:
        modules_built: Modules that got parts or parameters.
        groups_matched: Indices of the watch groups that match anything.
        unscanned: Parameters that were too large to be read for the origin of a bad value.
    """

    def __init__(
        self,
        request: Request,
        eye: Eye,
        calls: ModuleCalls,
        clock: StepClock,
        *,
        entries_at: Callable[[str, nn.Module], tuple[int, ...]],
        observe_gradient: Callable[[Site, Tensor], None] | None,
        attached: Callable[[RootInfo], None],
    ) -> None:
        self._request = request
        self._eye = eye
        self._calls = calls
        self._clock = clock
        self._entries_at = entries_at
        self._observe_gradient = observe_gradient
        self._attached = attached
        self._roots: list[Root] = []
        self._owners: weakref.WeakKeyDictionary[nn.Module, Root] = weakref.WeakKeyDictionary()
        self._found = 0
        self._has_model = False
        self._last_built = 0
        self._hooks: list[Any] = []
        self._gone: list[str] = []
        self.modules_built = 0
        self.groups_matched: set[int] = set()
        self._hidden: dict[str, None] = {}
        self._handed_over: dict[str, None] = {}
        self.unscanned: list[str] = []

    def start(self) -> None:
        self._hooks = [
            nn.modules.module.register_module_module_registration_hook(self._part_registered),
            nn.modules.module.register_module_parameter_registration_hook(self._registered),
        ]

    def stop(self) -> None:
        self._gone += self._calls.unseen()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for root in self._roots:
            root.close()
        self._roots.clear()
        self._owners.clear()

    def __iter__(self) -> Any:
        return iter(self._roots)

    def unobserved(self) -> list[str]:
        """Watched layers whose calls were never seen."""
        return [*self._gone, *self._calls.unseen()]

    @property
    def opaque(self) -> list[str]:
        """Watched layers with calls that are not seen, since torch.compile or TorchScript runs them."""
        unobserved = set(self.unobserved())
        return [*self._hidden, *(name for name in self._handed_over if name in unobserved and name not in self._hidden)]

    def is_part(self, module: nn.Module) -> bool:
        owner = self._owners.get(module)
        return owner is not None and not owner.is_root(module)

    def met(self, module: nn.Module, running: nn.Module) -> None:
        """A module that no root has is called inside `running`, into which it may have been put just now."""
        owner = self._owners.get(running)
        if module not in self._owners and owner is not None and self._clock.step >= owner.next_look:
            self.extend(owner)

    def owner_of(self, module: nn.Module) -> Root:
        """The root that `module` belongs to; its own, with what is not watched yet watched from now on, if none."""
        if module in self._owners:
            return self._owners[module]
        if isinstance(module, nn.parallel.DistributedDataParallel) and module.module in self._owners:
            # DistributedModelParallel wraps dense parts of a model that has been attached already.
            return self._owners.setdefault(module, self._owners[module.module])
        number = self._found + 1
        label = type(module).__name__ + (f"#{number}" if number > 1 else "")
        # The first model's layers are known by their paths alone. A loss, or what prepares a batch, is none.
        is_model = any(True for _ in module.parameters()) or self._is_watched_container(module)
        prefix = "" if is_model and not self._has_model else f"{label}."
        plan = ParameterPlan(self._request.max_param_numel, self._observe_gradient)
        root = Root(label, module, self._request, prefix, plan)
        inner = {id(found): found for part in module.modules() if (found := self._owners.get(part)) is not None}
        root.covers.extend(inner.values())
        self.extend(root)
        # A program may make a loss module, or a whole model, anew in each step: only living roots are kept.
        if root.has_parameters or root.watched_anything:
            self._found = number
            self._has_model = self._has_model or is_model
            self._roots = [*(earlier for earlier in self._roots if earlier.is_alive), root]
            self._gone += self._calls.forget_dead()[: _NAMES - len(self._gone)]
        return root

    def _is_watched_container(self, module: nn.Module) -> bool:
        has_parts = any(True for _ in module.children())
        return has_parts and any(True for _ in match(module.named_modules(), self._request.groups))

    def extend(self, root: Root) -> None:
        before = root.num_watched
        if not root.extend(self._eye, self._calls, self._owners, self._entries_at):
            # Modules that a forward makes for itself are no part of the model: look ever more rarely.
            root.next_look = 2 * self._clock.step
        self.groups_matched |= root.groups_matched
        self.unscanned += [name for name in root.unscanned if name not in self.unscanned][:_NAMES]
        for part in root.opaque_parts():
            self.compiled(part)
        if root.is_scripted and root.has_parameters:
            self._hidden[root.label] = None
        if root.num_watched != before and (root.has_parameters or root.watched_anything):
            self._attached(root.info())

    def compiled(self, module: nn.Module) -> None:
        """torch.compile or TorchScript has taken a module over; what is watched inside may not be seen from now on."""
        for part in module.modules():
            watched = self._calls.of(part)
            if watched is not None and watched.asked:
                self._handed_over[watched.path] = None

    def hidden(self, module: nn.Module) -> bool:
        """Compiled code has taken in a call of `module`, which is not seen; returns whether a root has it."""
        watched = self._calls.of(module)
        if watched is not None and watched.asked:
            self._hidden[watched.path] = None
        return module in self._owners

    def _registered(self, module: nn.Module, _name: str, _part: Any) -> None:
        """A module got a part or a parameter; those of one module usually come in a row."""
        if torch.compiler.is_compiling():
            return  # what is built while a program is compiled would have this compiled with it
        if id(module) != self._last_built:
            self._last_built = id(module)
            self.modules_built += 1

    def _part_registered(self, module: nn.Module, name: str, part: nn.Module | None) -> None:
        if torch.compiler.is_compiling():
            return
        self._registered(module, name, part)
        owner = self._owners.get(module)
        if owner is not None:
            owner.changed = True
        if name == "_orig_mod" and part is not None:
            self.compiled(part)  # torch.compile(part) wraps it so
