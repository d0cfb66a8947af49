"""Which of the places where a graph could hand out tensors do so: as few as may be, since each costs a fusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from aorta_collectors.observe.compiling.scope import Names, outermost_module
from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from aorta_collectors.tensors.compiled.operation import OUTPUT
from aorta_collectors.tensors.compiled.sites import Found

_UNFOUND = "it returns no tensor that could be found while compiling"
_BRANCH = "it is called in a branch or loop of compiled code"
_HOOKED = "hooks of its own, which may replace what it returns, are compiled with it"


class Keeping:
    """Keeps sites of layers that are told; and, where the same code may run for other parts of a model, of modules of
    the same class.

    A layer whose call is going on, as hooks see it, is told by those.

    Args:
        names: What the names of the captured function stand for.
        expressions: The modules whose code is part of the graph.
    """

    def __init__(self, lifecycle: Lifecycle, names: Names, expressions: Sequence[str]) -> None:
        self._lifecycle = lifecycle
        self._names = names
        self._layers = dict.fromkeys(
            layer for each in expressions if (layer := self._layer(each)) and not lifecycle.is_running(layer)
        )
        outermost = [outermost_module(names, each) for each in expressions]
        self._is_whole = all(each is not None and lifecycle.is_whole(each) for each in outermost)
        self._kept: set[str] = set()
        self._reasons: dict[str, str] = {}

    def __call__(self, found: Found) -> bool:
        site = found.site
        if site.is_of_program:
            return not found.is_inside
        module = self._names.value(site.module) if site.module else None
        if not isinstance(module, nn.Module):
            return False
        layer = self._lifecycle.layer_of(module)
        if layer is None:
            return not (self._is_whole or found.is_inside) and type(module) in self._lifecycle.told_types
        if self._lifecycle.is_running(layer):
            return False
        if found.is_inside or (site.kind == OUTPUT and module._forward_hooks):
            self._reasons[layer] = _BRANCH if found.is_inside else _HOOKED
            return False
        self._kept.add(layer)
        return True

    def missing(self) -> Iterator[tuple[str, str]]:
        """Layers whose code is part of the graph and of which something is not handed out, and why."""
        yield from self._reasons.items()
        for layer in self._layers:
            if layer not in self._kept and layer not in self._reasons:
                yield layer, _UNFOUND

    def _layer(self, expression: str) -> str | None:
        module = self._names.value(expression)
        return self._lifecycle.layer_of(module) if isinstance(module, nn.Module) else None
