"""One root: the modules below it whose calls are seen, by name."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from aorta_collectors.observe.called import Called
from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.paths import module_path

#: Given a path, the layer's name, the same without what wrappers add, and whether the module there is part of a larger
#: one: what sees its calls; None where nothing is to be seen.
Look = Callable[[str, str, str, bool], "Called | None"]


class Below(Protocol):
    """What is looked at below one root."""

    def look(self, parts: Mapping[str, nn.Module]) -> Look:
        """Called with all modules below the root by path, in the order of named_modules().

        What it returns is asked, at once and in that order, for each that no root had so far.
        """

    def close(self) -> None:
        """Nothing is looked at any more."""


B_co = TypeVar("B_co", bound=Below, covariant=True)


class Root(Generic[B_co]):
    """Knows what lies below one module. Layer names are paths below it, "(root)" for itself, after `prefix`.

    Attributes:
        below: What is looked at there.
        covers: This root and those found earlier that turned out to lie inside it: its steps are theirs.
        changed: Whether a module got a new part since the last `extend`.
        next_look: Step from which an unknown module, met inside, is a reason to look through the model again.
    """

    def __init__(self, label: str, module: nn.Module, prefix: str, below: B_co) -> None:
        self.label = label
        self.below = below
        self.scanned_step = 0
        self.changed = True
        self.next_look = 0
        self.covers = [self]
        self.has_parameters = any(True for _ in module.parameters())
        # Weak, so that a model is freed when it would have been.
        self._module = weakref.ref(module)
        self._prefix = prefix
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
    def names(self) -> tuple[str, ...]:
        """Layers that somebody asked for."""
        return tuple(self._names or ())

    @property
    def is_alive(self) -> bool:
        return self._module() is not None

    @property
    def is_scripted(self) -> bool:
        return isinstance(self._module(), torch.jit.ScriptModule)

    def is_root(self, module: nn.Module) -> bool:
        return self._module() is module

    def extend(self, calls: ModuleCalls, owners: MutableMapping[nn.Module, Root[Any]]) -> bool:
        """Watch what belongs to no root yet: all of it at first, later what was added or replaced.

        Returns whether there was any new module, watched or not.
        """
        self.changed = False
        self._names = self._names or []
        module = self._module()
        if module is None:
            return False
        parts = dict(module.named_modules())
        look = self.below.look(parts)
        new = False
        for path, part in parts.items():
            if part in owners:
                continue
            new = True
            owners[part] = self
            layer = self._prefix + (path or "(root)")
            short = self._prefix + module_path(path, parts)
            called = look(path, layer, short, not self.is_root(part))
            if called is not None:
                if called.asked and layer not in self._names:  # it may take the place of one that is gone
                    self._names.append(layer)
                calls.watch(part, called)
            elif not self.is_root(part):
                calls.pass_over(part)
        return new

    def close(self) -> None:
        self.below.close()

    def opaque_parts(self) -> Iterator[nn.Module]:
        """The outermost modules whose inner calls are not seen, since torch.compile or TorchScript runs them."""
        root = self._module()
        for part in root.modules() if root is not None else ():
            compiled = getattr(part, "_compiled_call_impl", None) is not None or hasattr(part, "_orig_mod")
            if compiled or isinstance(part, torch.jit.ScriptModule):
                yield part
