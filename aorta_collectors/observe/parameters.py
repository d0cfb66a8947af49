"""Which parameters are read each step: their values when it begins, their gradients at the optimizer's step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.observation import Site
from aorta_collectors.observe.watch import Watched, is_embedding


class _Owned:
    """A module's parameter by name: the object may be replaced (load_state_dict(assign=True)), or be lazy at first."""

    __slots__ = ("channels", "gradient", "last", "module", "name", "path", "planned", "value")

    def __init__(self, found: Watched, path: str, name: str) -> None:
        self.module = weakref.ref(found.module)
        self.name = name
        self.path = path
        self.channels = found.channels
        self.planned = False
        self.value: Site | None = None
        self.gradient: Site | None = None
        self.last: weakref.ref[Tensor] | None = None

    def current(self) -> Tensor | None:
        module = self.module()
        param = module._parameters.get(self.name) if module is not None else None
        return param if param is not None and not is_lazy(param) else None


class ParameterPlan:
    """Made at attach, so that a step does no walking, matching or measuring.

    Attributes:
        skipped: Parameters that are deliberately not scanned, with the reason: never to be read as clean.
    """

    def __init__(self, max_param_numel: int) -> None:
        self._max_param_numel = max_param_numel
        self._owned: list[_Owned] = []
        self._by_id: dict[int, _Owned] = {}
        self.skipped: list[dict[str, object]] = []

    @property
    def num_values(self) -> int:
        return sum(owned.value is not None for owned in self._owned)

    @property
    def num_gradients(self) -> int:
        return sum(owned.gradient is not None for owned in self._owned)

    def add(self, found: Watched, path: str) -> None:
        """Plan the module's own parameters, under the layer name `path`."""
        if not found.channels & {"weight", "bias", "wgrad", "bgrad"} or isinstance(
            found.module, torch.jit.ScriptModule
        ):
            return
        for name in found.module._parameters:
            owned = _Owned(found, path, name)
            param = owned.current()
            if param is None or self._plan(owned, param, skip=is_embedding(found.module)):
                self._owned.append(owned)

    def clear(self) -> None:
        self._owned, self._by_id = [], {}

    def values(self) -> Iterator[tuple[Site, Tensor]]:
        """(site, parameter) for each value channel; also learns of parameters that came or were replaced since."""
        for owned in self._owned:
            param = owned.current()
            if param is None or (not owned.planned and not self._plan(owned, param, skip=False)):
                continue
            if owned.last is None or owned.last() is not param:
                self._remember(owned, param)
            if owned.value is not None:
                yield owned.value, param

    def gradient_site(self, param: Tensor) -> Site | None:
        owned = self._by_id.get(id(param))
        # An id is only good while its parameter lives.
        if owned is None or owned.last is None or owned.last() is not param:
            return None
        return owned.gradient

    def _plan(self, owned: _Owned, param: Tensor, *, skip: bool) -> bool:
        """Decide what is read of a parameter; False if nothing is."""
        owned.planned = True
        value_role, grad_role = ("weight", "wgrad") if param.ndim >= 2 else ("bias", "bgrad")
        if not owned.channels & {value_role, grad_role}:
            return False
        if skip or param.numel() > self._max_param_numel:
            self.skipped.append(
                {
                    "layer_name": owned.path,
                    "param_name": owned.name,
                    "reason": "embedding_type" if skip else "numel_over_guard",
                    "numel": param.numel(),
                    "ndim": param.ndim,
                }
            )
            return False
        if value_role in owned.channels:
            owned.value = Site(owned.path, "param", value_role, owned.name)
        if grad_role in owned.channels:
            owned.gradient = Site(owned.path, "grad", grad_role, owned.name)
        self._remember(owned, param)
        return True

    def _remember(self, owned: _Owned, param: Tensor) -> None:
        owned.last = weakref.ref(param)
        if owned.gradient is not None:
            self._by_id[id(param)] = owned
