"""One root: the hooks on its watched modules, and the plan of its parameters to scan."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator

from torch import Tensor, nn

from aorta_collectors.observe.hooks import AfterForward, BeforeForward, Eye
from aorta_collectors.observe.observation import RootInfo, Site
from aorta_collectors.observe.parameters import ParameterPlan
from aorta_collectors.observe.watch import Watched, WatchGroup, match


class Root:
    """Hooks below one module. Layer names are paths below it, "(root)" for itself, after `prefix`.

    Attributes:
        covers: This root and those found earlier that turned out to lie inside it: its steps are theirs.
        first_call: The hook before the root's own forward, if it is watched itself.
    """

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
        self.has_parameters = any(True for _ in module.parameters())
        self.first_call: BeforeForward | None = None
        # Weak, so that a model is freed when it would have been.
        self._module = weakref.ref(module)
        self._handles: list[object] = []
        self._before: list[BeforeForward] = []
        self._plan = ParameterPlan(max_param_numel)
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

    @property
    def is_alive(self) -> bool:
        return self._module() is not None

    def info(self) -> RootInfo:
        plan = self._plan
        return RootInfo(self.label, self._names, plan.num_values, plan.num_gradients, tuple(plan.skipped))

    def attach(self, eye: Eye) -> None:
        for found in self._watched:
            try:
                self._hook(found, eye)
                self._plan.add(found)
            except Exception as error:  # a scripted module takes no hooks
                eye.failed(error)
        self._watched = []  # holds modules

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()  # type: ignore[attr-defined]
        for before in self._before:
            before.release()
        self._handles, self._before = [], []
        self._plan.clear()

    def values(self) -> Iterator[tuple[Site, Tensor]]:
        """The parameters to read now, at the start of a step."""
        return self._plan.values()

    def gradient_site(self, param: Tensor) -> Site | None:
        """Where `param.grad` belongs, or None."""
        return self._plan.gradient_site(param)

    def _hook(self, found: Watched, eye: Eye) -> None:
        module, channels = found.module, found.channels
        if channels & {"input", "igrad"}:
            before = BeforeForward(
                eye,
                Site(found.path, "fwd", "input") if "input" in channels else None,
                Site(found.path, "bwd", "igrad") if "igrad" in channels else None,
                module,
            )
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            self._before.append(before)
            if self.is_root(module):
                self.first_call = before
        if "act" in channels:
            after = AfterForward(eye, Site(found.path, "fwd", "act"))
            self._handles.append(module.register_forward_hook(after))
