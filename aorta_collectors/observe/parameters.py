"""Which parameters are read: their values when a step begins, their gradients at the optimizer's step.

Where the origin of a bad value is wanted, all of them are, and besides: buffers when a step begins, each gradient as
backward computes it, and the parameters once more after the optimizer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.input_gradient import hook_gradient
from aorta_collectors.observe.observation import Site
from aorta_collectors.observe.watch import Watched, is_embedding


class _Owned:
    """A module's parameter by name: the object may be replaced (load_state_dict(assign=True)), or be lazy at first."""

    __slots__ = (
        "bounds",
        "channels",
        "gradient",
        "hooks",
        "last",
        "local",
        "module",
        "module_path",
        "name",
        "path",
        "planned",
        "sums",
        "total",
        "update",
        "value",
    )

    def __init__(
        self, found: Watched, path: str, module_path: str, name: str, bounds: tuple[float, float] | None
    ) -> None:
        self.module = weakref.ref(found.module)
        self.name = name
        self.path = path
        self.module_path = module_path
        self.channels = found.channels
        self.bounds = bounds
        self.planned = False
        self.value: Site | None = None
        self.gradient: Site | None = None
        self.local: Site | None = None
        self.total: Site | None = None
        self.update: Site | None = None
        self.last: weakref.ref[Tensor] | None = None
        self.hooks: list[Any] = []
        self.sums = False  # whether .grad is going to be another than what backward computes now

    def current(self) -> Tensor | None:
        module = self.module()
        param = module._parameters.get(self.name) if module is not None else None
        return param if param is not None and not is_lazy(param) else None

    def site(self, direction: str, role: str, *, recorded: bool) -> Site:
        return Site(
            self.path,
            direction,
            role,
            self.name,
            module_path=self.module_path,
            bounds=self.bounds,
            recorded=recorded,
        )


class ParameterPlan:
    """Made at attach, so that a step does no walking, matching or measuring.

    Args:
        max_param_numel: Parameters with more elements are not read.
        observe_gradient: Where each parameter's gradient goes as backward computes it, if the origin of a bad value is
            wanted; None otherwise.

    Attributes:
        skipped: Parameters that were asked for and are deliberately not read, with the reason: never to be read as
            clean.
        too_large: Paths of parameters not read for the origin because of their size.
    """

    def __init__(self, max_param_numel: int, observe_gradient: Callable[[Site, Tensor], None] | None = None) -> None:
        self._max_param_numel = max_param_numel
        self._observe_gradient = observe_gradient
        self._owned: list[_Owned] = []
        self._by_id: dict[int, _Owned] = {}
        self._buffers: list[tuple[weakref.ref[nn.Module], str, Site]] = []
        self.skipped: list[dict[str, object]] = []
        self.too_large: list[str] = []

    @property
    def num_values(self) -> int:
        return sum(owned.value is not None and owned.value.recorded for owned in self._owned)

    @property
    def num_gradients(self) -> int:
        # A weight that two modules share has one gradient.
        return sum(owned.gradient is not None and owned.gradient.recorded for owned in self._by_id.values())

    def add(self, found: Watched, path: str, module_path: str, bounds: tuple[float, float] | None) -> None:
        """Plan the module's own parameters, under the layer name `path`."""
        origin = self._observe_gradient is not None
        if not found.channels & {"weight", "bias", "wgrad", "bgrad"} and not origin:
            return
        if isinstance(found.module, torch.jit.ScriptModule):
            return
        for name in found.module._parameters:
            owned = _Owned(found, path, module_path, name, bounds)
            param = owned.current()
            if param is None or self._plan(owned, param, skip=is_embedding(found.module)):
                self._owned.append(owned)
        if origin:
            for name, buffer in found.module.named_buffers(recurse=False):
                if is_lazy(buffer) or (buffer.is_floating_point() and buffer.numel() <= self._max_param_numel):
                    site = Site(path, "param", "buffer", name, module_path=module_path, recorded=False)
                    self._buffers.append((weakref.ref(found.module), name, site))

    def clear(self) -> None:
        for owned in self._owned:
            for hook in owned.hooks:
                hook.remove()
        self._owned, self._by_id, self._buffers = [], {}, []

    def values(self) -> Iterator[tuple[Site, Tensor]]:
        """(site, tensor) for each parameter and buffer; also learns of parameters that came or were replaced since."""
        for owned in self._owned:
            param = owned.current()
            if param is None or (not owned.planned and not self._plan(owned, param, skip=False)):
                continue
            if owned.last is None or owned.last() is not param:
                self._remember(owned, param)
            if owned.value is not None:
                yield owned.value, param
        for module, name, site in self._buffers:
            owner = module()
            buffer = owner._buffers.get(name) if owner is not None else None
            if buffer is not None and not is_lazy(buffer):
                yield site, buffer

    def last_values(self) -> Iterator[tuple[Site, Tensor]]:
        """(site, parameter) after the last step: what a hand-written optimizer did then shows in no later one."""
        for owned in self._owned:
            param = owned.current()
            if param is not None and owned.update is not None:
                yield owned.site("last", owned.update.role, recorded=False), param

    def gradient_site(self, param: Tensor) -> Site | None:
        owned = self._of(param)
        return owned.gradient if owned is not None else None

    def update_site(self, param: Tensor) -> Site | None:
        """Where `param` belongs after the optimizer has changed it."""
        owned = self._of(param)
        return owned.update if owned is not None else None

    def _of(self, param: Tensor) -> _Owned | None:
        owned = self._by_id.get(id(param))
        # An id is only good while its parameter lives.
        return owned if owned is not None and owned.last is not None and owned.last() is param else None

    def _plan(self, owned: _Owned, param: Tensor, *, skip: bool) -> bool:
        """Decide what is read of a parameter; False if nothing is."""
        owned.planned = True
        value_role, grad_role = ("weight", "wgrad") if param.ndim >= 2 else ("bias", "bgrad")
        asked = owned.channels & {value_role, grad_role}
        too_large = param.numel() > self._max_param_numel
        if asked and (skip or too_large):
            self.skipped.append(
                {
                    "layer_name": owned.path,
                    "param_name": owned.name,
                    "reason": "embedding_type" if skip else "numel_over_guard",
                    "numel": param.numel(),
                    "ndim": param.ndim,
                }
            )
            asked = frozenset()
        origin = self._observe_gradient is not None
        if origin and too_large:
            self.too_large.append(f"{owned.path}.{owned.name}")
            origin = False
        if not asked and not origin:
            return False
        if value_role in asked or origin:
            owned.value = owned.site("param", value_role, recorded=value_role in asked)
        if grad_role in asked or origin:
            owned.gradient = owned.site("grad", grad_role, recorded=grad_role in asked)
        if origin:
            owned.local = owned.site("bwd", grad_role, recorded=False)
            owned.total = owned.site("sum", grad_role, recorded=False)
            owned.update = owned.site("update", value_role, recorded=False)
        self._remember(owned, param)
        return True

    def _remember(self, owned: _Owned, param: Tensor) -> None:
        owned.last = weakref.ref(param)
        if owned.gradient is not None:
            self._by_id[id(param)] = owned
        observe, local, total = self._observe_gradient, owned.local, owned.total
        if observe is None or local is None or total is None:
            return
        for hook in owned.hooks:
            hook.remove()
        owned.hooks = []
        if not (param.requires_grad and param.is_leaf):
            return

        def computed(grad: Tensor) -> None:
            observe(local, grad)
            param = owned.last() if owned.last is not None else None
            # Another hook, of the program's own, may come after this one.
            owned.sums = param is not None and (param.grad is not None or len(param._backward_hooks or ()) > 1)

        def accumulated(param: Tensor) -> None:
            if not torch.compiler.is_compiling() and owned.sums and param.grad is not None:
                observe(total, param.grad)

        after: Any = param.register_post_accumulate_grad_hook
        owned.hooks = [hook_gradient(param, computed), after(accumulated)]
