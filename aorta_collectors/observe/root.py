"""One root: the hooks on its watched modules, and the plan of its parameters to scan."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Container
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from aorta_collectors.observe.input_gradient import hook_input, uses_input_once, wants_gradient
from aorta_collectors.observe.observation import RootInfo, Site
from aorta_collectors.observe.tensors import first_tensor
from aorta_collectors.observe.watch import Watched, WatchGroup, is_embedding, match


class Eye(Protocol):
    """What the hooks report to (the observer)."""

    def observe(self, site: Site, tensor: Tensor) -> None: ...
    def observe_gradient(self, site: Site, grad: Tensor) -> None: ...
    def keep_until_drained(self, handle: Any) -> None: ...
    def failed(self, error: Exception) -> None: ...


class Root:
    """Hooks below one module. Layer names are paths below it, "(root)" for itself, after `prefix`."""

    def __init__(
        self,
        label: str,
        module: nn.Module,
        groups: tuple[WatchGroup, ...],
        already_hooked: Container[nn.Module],
        *,
        prefix: str,
        max_param_numel: int,
    ) -> None:
        self.label = label
        self.scanned_step = 0
        self.covers = [self]
        self._module = weakref.ref(module)
        self.has_parameters = any(True for _ in module.parameters())
        # Weak, so that a model is freed when it would have been.
        self.value_plan: list[tuple[Site, weakref.ref[nn.Parameter]]] = []
        self._grad_plan: dict[int, tuple[weakref.ref[nn.Parameter], Site]] = {}
        self.first_call: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any] | None = None
        self._skipped: list[dict[str, object]] = []
        self._handles: list[Any] = []
        self._max_param_numel = max_param_numel
        self._watched = [
            Watched(prefix + (found.path or "(root)"), found.module, found.channels)
            for found in match(module.named_modules(), groups)
            if found.module not in already_hooked
        ]
        self._names = tuple(found.path for found in self._watched)

    @property
    def watched_anything(self) -> bool:
        """Whether hooks stand on anything below this module, other roots inside it included."""
        return any(root._names for root in self.covers)

    def is_root(self, module: nn.Module) -> bool:
        return self._module() is module

    def cover(self, inner: list[Root]) -> None:
        """Roots found earlier turned out to lie inside this one: their steps are this one's."""
        self.covers.extend(inner)

    def info(self) -> RootInfo:
        return RootInfo(self.label, self._names, len(self.value_plan), len(self._grad_plan), tuple(self._skipped))

    def gradient_site(self, param: Tensor) -> Site | None:
        """Where `param.grad` belongs, or None. An id is only good while its parameter lives."""
        entry = self._grad_plan.get(id(param))
        return entry[1] if entry is not None and entry[0]() is param else None

    def attach(self, eye: Eye) -> None:
        for found in self._watched:
            try:
                self._hook(found, eye)
            except Exception as error:  # a scripted module takes no hooks
                eye.failed(error)
            self._plan_parameters(found)
        self._watched = []  # holds modules, and a model must be freed when it would have been

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.value_plan = []
        self._grad_plan = {}

    def _hook(self, found: Watched, eye: Eye) -> None:
        module, channels = found.module, found.channels
        if channels & {"input", "igrad"}:
            before = _before_forward(
                eye,
                Site(found.path, "fwd", "input") if "input" in channels else None,
                Site(found.path, "bwd", "igrad") if "igrad" in channels else None,
                uses_input_once(module),
            )
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            if self.is_root(module):
                self.first_call = before
        if "act" in channels:
            after = _after_forward(eye, Site(found.path, "fwd", "act"))
            self._handles.append(module.register_forward_hook(after))

    def _plan_parameters(self, found: Watched) -> None:
        skip = is_embedding(found.module)
        for name, param in found.module.named_parameters(recurse=False):
            value_role, grad_role = ("weight", "wgrad") if param.ndim >= 2 else ("bias", "bgrad")
            if not found.channels & {value_role, grad_role}:
                continue
            if skip or param.numel() > self._max_param_numel:
                self._skipped.append(
                    {
                        "layer_name": found.path,
                        "param_name": name,
                        "reason": "embedding_type" if skip else "numel_over_guard",
                        "numel": param.numel(),
                        "ndim": param.ndim,
                    }
                )
                continue
            if value_role in found.channels:
                self.value_plan.append((Site(found.path, "param", value_role, name), weakref.ref(param)))
            if grad_role in found.channels:
                self._grad_plan[id(param)] = (weakref.ref(param), Site(found.path, "grad", grad_role, name))


def _before_forward(
    eye: Eye, input_site: Site | None, gradient_site: Site | None, alias: bool
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]:
    gradient_hook = functools.partial(eye.observe_gradient, gradient_site) if gradient_site is not None else None

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling():
            return None
        try:
            tensor = first_tensor(args)
            if tensor is None and kwargs:
                tensor = first_tensor(kwargs)
            if tensor is None:
                return None
            if input_site is not None:
                eye.observe(input_site, tensor)
            if gradient_hook is not None and wants_gradient(tensor):
                new_args, handle = hook_input(tensor, args, alias, gradient_hook)
                if handle is not None:
                    eye.keep_until_drained(handle)
                if new_args is not None:
                    return new_args, kwargs
        except Exception as error:
            eye.failed(error)
        return None

    return before


def _after_forward(eye: Eye, site: Site) -> Callable[[nn.Module, Any, Any], None]:
    def after(_module: nn.Module, _args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            tensor = first_tensor(output)
            if tensor is not None:
                eye.observe(site, tensor)
        except Exception as error:
            eye.failed(error)

    return after
