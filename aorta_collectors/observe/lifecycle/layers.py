"""The layers below one root: which are told of, and which parameters they have."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.lifecycle.layer_call import LayerCalls
from aorta_collectors.observe.lifecycle.listener import OwnParameter
from aorta_collectors.observe.lifecycle.telling import Telling
from aorta_collectors.observe.paths import module_path
from aorta_collectors.observe.root import Look, Root

#: Given the path of a module below its root, "" for the root, and the module.
Wants = Callable[[str, nn.Module], bool]


class Names:
    """The layers of all models of a process by module, so that what is wrapped later keeps its name.

    Attributes:
        watched: How many of them are told of.
        types: Classes of modules that are.
    """

    def __init__(self) -> None:
        self._layers: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._wrappers: dict[str, LayerCalls] = {}
        self._inside: set[str] = set()
        self.watched = 0
        self.types: set[type[nn.Module]] = set()

    def of(self, wrapped: nn.Module, layer: str) -> str:
        return self._layers.setdefault(wrapped, layer)

    def known(self, module: nn.Module) -> str | None:
        """The layer that a module is, or None."""
        return self._layers.get(module)

    def wraps(self, layer: str, calls: LayerCalls) -> None:
        """Calls of a layer are seen at what wraps it."""
        self._wrappers[layer] = calls

    def seen_inside(self, layer: str) -> bool:
        """A call was seen inside compiled code; returns whether none had been."""
        is_first = layer not in self._inside
        self._inside.add(layer)
        return is_first

    def not_seen(self, layers: Iterable[str]) -> list[str]:
        """Those, once each, whose calls are not seen at a wrapper either, nor inside compiled code."""
        seen = self._inside | {layer for layer, calls in self._wrappers.items() if not calls.unseen}
        return [layer for layer in dict.fromkeys(layers) if layer not in seen]


class Layers:
    """What is looked at `Below` one root.

    Attributes:
        caller: The thread that called it last; 0 before the first call.
    """

    def __init__(self, telling: Telling, names: Names, wants: Wants, wants_parameters: Wants) -> None:
        self._telling = telling
        self._names = names
        self._wants = wants
        self._wants_parameters = wants_parameters
        self._owners: list[tuple[weakref.ref[nn.Module], str]] = []
        self.caller = 0

    def look(self, parts: Mapping[str, nn.Module]) -> Look:
        shorts = {path: module_path(path, parts) for path in parts}
        # Of a wrapper and what it wraps, which have the same path, the latter comes last.
        wrapped = {short: parts[path] for path, short in shorts.items()}
        is_model = any(True for part in parts.values() for _ in part.parameters(recurse=False))
        return partial(self._look, parts, shorts, wrapped, is_model)

    def _look(
        self,
        parts: Mapping[str, nn.Module],
        shorts: Mapping[str, str],
        wrapped: Mapping[str, nn.Module],
        is_model: bool,
        path: str,
        layer: str,
        short: str,
        is_part: bool,
    ) -> LayerCalls | None:
        module, inner = parts[path], wrapped[shorts[path]]
        below = "" if shorts[path] == "(root)" else shorts[path]
        name = self._names.of(inner, short)
        if self._asked(self._wants_parameters, below, inner):
            self._owners.append((weakref.ref(module), name))
        is_told = self._asked(self._wants, below, inner)
        if is_told:
            self._names.types.add(type(inner))
        if is_part and not is_told:
            return None
        calls = LayerCalls(self._telling, module, inner, name, is_part=is_part, is_model=is_model, is_told=is_told)
        if module is inner:
            self._names.watched += is_told and is_model
        else:
            self._names.wraps(name, calls)
        return calls

    def _asked(self, wants: Wants, path: str, module: nn.Module) -> bool:
        try:
            return wants(path, module)
        except Exception as error:
            self._telling.failures.add(error)
            return False

    def parameters(self) -> Iterator[OwnParameter]:
        """As they are now: a parameter may have been replaced, or come later."""
        for reference, layer in self._owners:
            module = reference()
            if module is None or isinstance(module, torch.jit.ScriptModule):
                continue
            for name, parameter in module._parameters.items():
                if parameter is not None and not is_lazy(parameter):
                    yield OwnParameter(layer, name, module, parameter)

    def close(self) -> None:
        self._owners.clear()


def parameters_of(roots: Iterable[Root[Layers]], leaves_out: Callable[[int], bool]) -> Iterator[OwnParameter]:
    """Those of all models, each once; but for models last called in a thread that `leaves_out` is true of."""
    known: set[int] = set()
    for root in roots:
        if leaves_out(root.below.caller):
            continue
        for each in root.below.parameters():
            if id(each.parameter) not in known:
                known.add(id(each.parameter))
                yield each
