"""Finding the models of a program: at their first call, when a wrapper builds one, when parts are put into one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.root import Below, Root

MOST_NAMES = 1000  # of layers of models that are gone

B = TypeVar("B", bound=Below)


class Roots(Generic[B]):
    """The roots of this process, and which module belongs to which.

    Args:
        below: Makes what is looked at below a new root.
        is_asked_for: Whether a module without parameters is a model all the same.
        attached: Called when modules of a root are watched anew.

    Attributes:
        modules_built: Modules that got parts or parameters.
    """

    def __init__(
        self,
        calls: ModuleCalls,
        clock: StepClock,
        *,
        below: Callable[[], B],
        is_asked_for: Callable[[nn.Module], bool],
        attached: Callable[[Root[B]], None],
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._below = below
        self._is_asked_for = is_asked_for
        self._attached = attached
        self._roots: list[Root[B]] = []
        self._owners: weakref.WeakKeyDictionary[nn.Module, Root[B]] = weakref.WeakKeyDictionary()
        self._found = 0
        self._has_model = False
        self._last_built = 0
        self._hooks: list[Any] = []
        self._gone: list[str] = []
        self.modules_built = 0
        self._hidden: dict[str, None] = {}
        self._handed_over: dict[str, bool] = {}

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

    def __iter__(self) -> Iterator[Root[B]]:
        return iter(self._roots)

    def unobserved(self) -> list[str]:
        """Watched layers whose calls were never seen."""
        return [*self._gone, *self._calls.unseen()]

    @property
    def opaque(self) -> list[str]:
        """Watched layers with calls that are not seen, since torch.compile or TorchScript runs them."""
        unobserved = set(self.unobserved())
        return [*self._hidden, *(name for name in self._handed_over if name in unobserved and name not in self._hidden)]

    @property
    def hidden_names(self) -> list[str]:
        """Those of them that a compiler has really taken in. Others it was given, and they may not be called at all."""
        unobserved = set(self.unobserved())
        scripted = [name for name, is_scripted in self._handed_over.items() if is_scripted and name in unobserved]
        return [*self._hidden, *(name for name in scripted if name not in self._hidden)]

    def is_part(self, module: nn.Module) -> bool:
        owner = self._owners.get(module)
        return owner is not None and not owner.is_root(module)

    def met(self, module: nn.Module, running: nn.Module) -> None:
        """A module that no root has is called inside `running`, into which it may have been put just now."""
        owner = self._owners.get(running)
        if module not in self._owners and owner is not None and self._clock.step >= owner.next_look:
            self.extend(owner)

    def owner_of(self, module: nn.Module) -> Root[B]:
        """The root that `module` belongs to; its own, with what is not watched yet watched from now on, if none."""
        if module in self._owners:
            return self._owners[module]
        if isinstance(module, nn.parallel.DistributedDataParallel) and module.module in self._owners:
            # DistributedModelParallel wraps dense parts of a model that has been attached already.
            return self._owners.setdefault(module, self._owners[module.module])
        number = self._found + 1
        label = type(module).__name__ + (f"#{number}" if number > 1 else "")
        # The first model's layers are known by their paths alone. A loss, or what prepares a batch, is none.
        is_model = any(True for _ in module.parameters()) or self._is_asked_for(module)
        prefix = "" if is_model and not self._has_model else f"{label}."
        root = Root(label, module, prefix, self._below())
        inner = {id(found): found for part in module.modules() if (found := self._owners.get(part)) is not None}
        root.covers.extend(inner.values())
        self.extend(root)
        # A program may make a loss module, or a whole model, anew in each step: only living roots are kept.
        if root.has_parameters or root.watched_anything:
            self._found = number
            self._has_model = self._has_model or is_model
            self._roots = [*(earlier for earlier in self._roots if earlier.is_alive), root]
            self._gone += self._calls.forget_dead()[: MOST_NAMES - len(self._gone)]
        return root

    def extend(self, root: Root[B]) -> None:
        before = root.num_watched
        if not root.extend(self._calls, self._owners):
            # Modules that a forward makes for itself are no part of the model: look ever more rarely.
            root.next_look = 2 * self._clock.step
        for part in root.opaque_parts():
            self.compiled(part)
        if root.is_scripted and root.has_parameters:
            self._hidden[root.label] = None
        if root.num_watched != before and (root.has_parameters or root.watched_anything):
            self._attached(root)

    def compiled(self, module: nn.Module) -> None:
        """torch.compile or TorchScript has taken a module over; what is watched inside may not be seen from now on."""
        for part in module.modules():
            watched = self._calls.of(part)
            if watched is not None and watched.asked:
                self._handed_over[watched.path] = isinstance(part, torch.jit.ScriptModule)

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
