"""One root: its watched modules by name, and the plan of its parameters to scan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, MutableMapping

import torch
from torch import Tensor, nn

from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.observation import RootInfo, Site
from aorta_collectors.observe.parameters import ParameterPlan
from aorta_collectors.observe.paths import module_path
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.watch import Watched, match
from aorta_collectors.observe.watched import Eye, WatchedModule


class Root:
    """Watches what lies below one module. Layer names are paths below it, "(root)" for itself, after `prefix`.

    Attributes:
        covers: This root and those found earlier that turned out to lie inside it: its steps are theirs.
        changed: Whether a module got a new part since the last `extend`.
        groups_matched: Indices of the watch groups that match anything below.
        next_look: Step from which an unknown module, met inside, is a reason to look through the model again.
    """

    def __init__(self, label: str, module: nn.Module, request: Request, prefix: str, plan: ParameterPlan) -> None:
        self.label = label
        self.scanned_step = 0
        self.changed = True
        self.next_look = 0
        self.groups_matched: set[int] = set()
        self.covers = [self]
        self.has_parameters = any(True for _ in module.parameters())
        # Weak, so that a model is freed when it would have been.
        self._module = weakref.ref(module)
        self._request = request
        self._prefix = prefix
        self._plan = plan
        self._names: list[str] | None = None

    @property
    def watched_anything(self) -> bool:
        """Whether anything below this module is watched, other roots inside it included."""
        return any(root._names for root in self.covers)

    @property
    def num_watched(self) -> int:
        """Watched layers; -1 before the first `extend`."""
        return len(self._names) if self._names is not None else -1

    @property
    def is_alive(self) -> bool:
        return self._module() is not None

    @property
    def is_scripted(self) -> bool:
        return isinstance(self._module(), torch.jit.ScriptModule)

    @property
    def unscanned(self) -> list[str]:
        """Parameters that were too large to be read for the origin of a bad value."""
        return self._plan.too_large

    def is_root(self, module: nn.Module) -> bool:
        return self._module() is module

    def info(self) -> RootInfo:
        plan = self._plan
        return RootInfo(self.label, tuple(self._names or ()), plan.num_values, plan.num_gradients, tuple(plan.skipped))

    def extend(
        self,
        eye: Eye,
        calls: ModuleCalls,
        owners: MutableMapping[nn.Module, Root],
        entries_at: Callable[[str, nn.Module], tuple[int, ...]],
    ) -> bool:
        """Watch what matches now and belongs to no root yet: all of it at first, later what was added or replaced.

        Args:
            entries_at: Which followed tensors are read again after calls of a module.

        Returns whether there was any new module, watched or not.
        """
        self.changed = False
        self._names = self._names or []
        module = self._module()
        if module is None:
            return False
        parts = dict(module.named_modules())
        selected = {found.module: found for found in match(parts.items(), self._request.groups)}
        new = False
        for path, part in parts.items():
            found = selected.get(part) or Watched(path, part, frozenset())
            self.groups_matched |= found.groups
            if part in owners:
                continue
            new = True
            owners[part] = self
            follow = entries_at(path, part)
            if found.channels or follow or self._request.origin:
                layer = self._prefix + (path or "(root)")
                if (found.channels or follow) and layer not in self._names:  # it may take the place of one that is gone
                    self._names.append(layer)
                short = self._prefix + module_path(path, parts)
                watched = WatchedModule(eye, part, layer, short, found.channels, follow, is_part=not self.is_root(part))
                calls.watch(part, watched)
                try:
                    self._plan.add(found, layer, short, eye.bounds_of(layer) if found.channels else None)
                except Exception as error:
                    eye.failed(error)
        return new

    def close(self) -> None:
        self._plan.clear()

    def values(self) -> Iterator[tuple[Site, Tensor]]:
        """The parameters to read now, at the start of a step."""
        return self._plan.values()

    def last_values(self) -> Iterator[tuple[Site, Tensor]]:
        """The parameters to read once more when nothing comes any more, if the origin of a bad value is wanted."""
        return self._plan.last_values()

    def gradient_site(self, param: Tensor) -> Site | None:
        """Where `param.grad` belongs, or None."""
        return self._plan.gradient_site(param)

    def update_site(self, param: Tensor) -> Site | None:
        """Where `param` belongs after the optimizer's step, or None."""
        return self._plan.update_site(param)

    def opaque_parts(self) -> Iterator[nn.Module]:
        """The outermost modules whose inner calls are not seen, since torch.compile or TorchScript runs them."""
        root = self._module()
        for part in root.modules() if root is not None else ():
            compiled = getattr(part, "_compiled_call_impl", None) is not None or hasattr(part, "_orig_mod")
            if compiled or isinstance(part, torch.jit.ScriptModule):
                yield part
