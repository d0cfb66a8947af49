"""Which modules' calls a compiled region has taken in: their code runs there, and no hook of theirs does.

Known when the region is captured. torch runs the same code for another module of the same kind as well, such as the
next block of a stack; that shows in the parameters that a run is given.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

from torch import fx, nn

from aorta_collectors.observe.compiling.scope import Names, current_names, outermost_module

_MOST_MODULES = 1000  # for which one region's code runs


class Run(NamedTuple):
    """One run of a region.

    Attributes:
        code: The function that the region was captured from, or the rest of one after a graph break.
        outermost: The modules that are called by it, or that hold those.
        inlined: All whose code is part of the region, those called by others included.
    """

    code: CodeType
    outermost: tuple[nn.Module, ...]
    inlined: tuple[nn.Module, ...]


class Inlined:
    """The modules of one region. Refers to them weakly.

    Args:
        graph: As captured.
        code, names: The function it was captured from, and what its names stood for then.
    """

    def __init__(self, graph: fx.Graph, code: CodeType, names: Names) -> None:
        self._code = code
        stacks = [_stack(node) for node in graph.nodes if node.op != "placeholder"]
        self._outermost = tuple(dict.fromkeys(stack[0] for stack in stacks if stack))
        self._inlined = tuple(dict.fromkeys(expression for stack in stacks for expression in stack))
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self._parameter = next((at for at, node in enumerate(inputs) if _is_parameter(node)), None)
        self._found = self._resolved(names)
        self._captured_with: weakref.ref[Any] | None = None
        self._others: dict[int, tuple[weakref.ref[Any], _Found]] = {}

    def __bool__(self) -> bool:
        return bool(self._inlined)

    def run(self, args: Sequence[Any]) -> Run:
        """Who takes part in a run with `args`. To be asked right before it."""
        found = self._found
        given = args[self._parameter] if self._parameter is not None and self._parameter < len(args) else None
        if isinstance(given, nn.Parameter):
            if self._captured_with is None:
                self._captured_with = weakref.ref(given)  # the first run is that of the module it was captured for
            elif self._captured_with() is not given:
                found = self._of_another(given)
        return Run(self._code, _living(found.outermost), _living(found.inlined))

    def _of_another(self, given: nn.Parameter) -> _Found:
        known = self._others.get(id(given))
        if known is None or known[0]() is not given:
            if len(self._others) >= _MOST_MODULES:
                self._others.clear()
            known = self._others[id(given)] = (weakref.ref(given), self._resolved(current_names(self._code)))
        return known[1]

    def _resolved(self, names: Names) -> _Found:
        outermost = [outermost_module(names, expression) for expression in self._outermost]
        inlined = [names.value(expression) for expression in self._inlined]
        return _Found(_references(outermost), _references(inlined))


class _Found(NamedTuple):
    outermost: tuple[weakref.ref[nn.Module], ...]
    inlined: tuple[weakref.ref[nn.Module], ...]


def _stack(node: fx.Node) -> list[str]:
    """The expressions of the modules in whose code the operation lies, the outermost first."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    return [str(entry[0]) for entry in stack.values()]


def _is_parameter(node: fx.Node) -> bool:
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return "_parameters[" in str(name() if callable(name) else name)


def _references(found: Sequence[Any]) -> tuple[weakref.ref[nn.Module], ...]:
    modules = {id(module): module for module in found if isinstance(module, nn.Module)}
    return tuple(weakref.ref(module) for module in modules.values())


def _living(references: Sequence[weakref.ref[nn.Module]]) -> tuple[nn.Module, ...]:
    return tuple(module for reference in references if (module := reference()) is not None)
