"""One compiled region that hands out tensors: whose they are, in each of its runs.

torch runs the code of one block of a model for another as well. So a site is known by an expression in the variables
of the function that was captured, and what it stands for is found out where the run begins. The backward graph of a run
comes later, and maybe in between those of others: a hook in autograd's graph says which one begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aorta_collectors.observe.compiling.scope import Names, current_names
from aorta_collectors.tensors.compiled.sites import Site

_MOST_OWNERS = 1000
_BACKWARD = "CompiledFunctionBackward"
# Between an output and its region's node lie views at most.
_MOST_VIEWS = 3


class Owner(NamedTuple):
    """Whose tensors a site hands out.

    Attributes:
        layer: None where nothing of it is told.
        module_type: The module's class.
    """

    layer: str | None
    module_type: str


class Run:
    """One run.

    Attributes:
        owners: By site.
        told: By layer, whether its calls in this run are told.
        seen: Sites that have handed out their tensor.
    """

    def __init__(self, owners: Sequence[Owner]) -> None:
        self.owners = owners
        self.told: dict[str, bool] = {}
        self.seen: set[int] = set()


class Region:
    """
    Args:
        code: The function that it was captured from.
        names: What its names stood for then.
        layer_of: The layer as which calls of a module are told.

    Attributes:
        number: As the operation has it.
        latest, backward: The run that began last; that whose backward graph did.
    """

    def __init__(
        self,
        number: int,
        code: CodeType,
        sites: Sequence[Site],
        names: Names,
        layer_of: Callable[[nn.Module], str | None],
    ) -> None:
        self.number = number
        self.sites = sites
        self.hands_out_gradients = False
        self._code = code
        self._layer_of = layer_of
        expressions = dict.fromkeys(site.module for site in sites if site.module)
        self._bases = tuple(dict.fromkeys(_base(expression) for expression in expressions))
        self._known: dict[tuple[int, ...], tuple[list[Any], list[Owner]]] = {}
        self._as_captured = self._owners(names)
        self.latest = self.backward = Run(self._as_captured)

    def begin(self) -> Run:
        """A run is about to begin: to be asked below the frame of the captured function."""
        names = current_names(self._code)
        owners = self._owners(names) if names.locals or not self._bases else self._as_captured
        self.latest = Run(owners)
        return self.latest

    def _owners(self, names: Names) -> list[Owner]:
        values = [names.value(base) for base in self._bases]
        key = tuple(id(value) for value in values)
        known = self._known.get(key)
        if known is not None and all(reference() is value for reference, value in zip(known[0], values, strict=True)):
            return known[1]
        found = {site.module: self._owner(names, site.module) for site in self.sites}
        owners = [found[site.module] for site in self.sites]
        try:
            references: list[Any] = [weakref.ref(value) for value in values]
        except TypeError:  # a list of modules, say
            return owners
        if len(self._known) >= _MOST_OWNERS:
            self._known.clear()
        self._known[key] = (references, owners)
        return owners

    def _owner(self, names: Names, expression: str) -> Owner:
        module = names.value(expression) if expression else None
        if not isinstance(module, nn.Module):
            return Owner(None, "")
        return Owner(self._layer_of(module), type(module).__name__)

    def ended(self, run: Run, outputs: Any) -> None:
        """A run has ended: hear when its backward graph begins."""
        node = _backward_node(outputs) if self.hands_out_gradients and torch.is_grad_enabled() else None
        if node is not None:
            node.register_prehook(_BackwardBegins(self, run))


class _BackwardBegins:
    """A hook of a node of autograd's graph."""

    __slots__ = ("_region", "_run")

    def __init__(self, region: Region, run: Run) -> None:
        self._region = region
        self._run = run

    def __call__(self, _grads: Any) -> None:
        if not torch.compiler.is_compiling():
            self._region.backward = self._run


def _backward_node(outputs: Any) -> Any:
    for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        node: Any = output.grad_fn if isinstance(output, Tensor) else None
        for _ in range(_MOST_VIEWS):
            if node is None:
                break
            if _BACKWARD in type(node).__name__:
                return node
            node = node.next_functions[0][0] if node.next_functions else None
    return None


def _base(expression: str) -> str:
    """The variable at the beginning of an expression."""
    return expression[: expression.index("]") + 1] if "]" in expression else expression
