"""What an observer looks at below one root: the modules that match its request, and the plan of parameters to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from torch import Tensor, nn

from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.observation import RootInfo, Site
from aorta_collectors.observe.parameters import ParameterPlan
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.root import Look, Root
from aorta_collectors.observe.roots import MOST_NAMES, Roots
from aorta_collectors.observe.watch import Watched, match
from aorta_collectors.observe.watched import Eye, WatchedModule


class Recorded:
    """Below one root.

    Args:
        entries_at: Which followed tensors are read again after calls of a module.
        observe_gradient: Where gradients of parameters go if the origin of a bad value is wanted.

    Attributes:
        groups_matched: Indices of the watch groups that match anything below.
    """

    def __init__(
        self,
        request: Request,
        eye: Eye,
        entries_at: Callable[[str, nn.Module], tuple[int, ...]],
        observe_gradient: Callable[[Site, Tensor], None] | None,
    ) -> None:
        self._request = request
        self._eye = eye
        self._entries_at = entries_at
        self._plan = ParameterPlan(request.max_param_numel, observe_gradient)
        self._selected: dict[nn.Module, Watched] = {}
        self.groups_matched: set[int] = set()

    @property
    def unscanned(self) -> list[str]:
        """Parameters that were too large to be read for the origin of a bad value."""
        return self._plan.too_large

    def look(self, parts: Mapping[str, nn.Module]) -> Look:
        selected = {found.module: found for found in match(parts.items(), self._request.groups)}
        for found in selected.values():
            self.groups_matched |= found.groups
        return partial(self._look, parts, selected)

    def _look(
        self,
        parts: Mapping[str, nn.Module],
        selected: Mapping[nn.Module, Watched],
        path: str,
        layer: str,
        short: str,
        is_part: bool,
    ) -> WatchedModule | None:
        eye, part = self._eye, parts[path]
        found = selected.get(part) or Watched(path, part, frozenset())
        follow = self._entries_at(path, part)
        if not (found.channels or follow or self._request.origin):
            return None
        watched = WatchedModule(eye, part, layer, short, found.channels, follow, is_part=is_part)
        try:
            self._plan.add(found, layer, short, eye.bounds_of(layer) if found.channels else None)
        except Exception as error:
            eye.failed(error)
        return watched

    def close(self) -> None:
        self._plan.clear()

    def info(self, root: Root[Recorded]) -> RootInfo:
        plan = self._plan
        return RootInfo(root.label, root.names, plan.num_values, plan.num_gradients, tuple(plan.skipped))

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


class RecordedRoots(Roots[Recorded]):
    """The roots of an observer.

    Args:
        entries_at: Which followed tensors are read again after calls of a module.
        observe_gradient: Where gradients of parameters go if the origin of a bad value is wanted.
        attached: Called when modules of a root are watched anew.

    Attributes:
        groups_matched: Indices of the watch groups that match anything.
        unscanned: Parameters that were too large to be read for the origin of a bad value.
    """

    def __init__(
        self,
        request: Request,
        eye: Eye,
        calls: ModuleCalls,
        clock: StepClock,
        *,
        entries_at: Callable[[str, nn.Module], tuple[int, ...]],
        observe_gradient: Callable[[Site, Tensor], None] | None,
        attached: Callable[[RootInfo], None],
    ) -> None:
        super().__init__(
            calls,
            clock,
            below=lambda: Recorded(request, eye, entries_at, observe_gradient),
            is_asked_for=self._is_asked_for,
            attached=lambda root: attached(root.below.info(root)),
        )
        self._request = request
        self.groups_matched: set[int] = set()
        self.unscanned: list[str] = []

    def extend(self, root: Root[Recorded]) -> None:
        super().extend(root)
        self.groups_matched |= root.below.groups_matched
        self.unscanned += [name for name in root.below.unscanned if name not in self.unscanned][:MOST_NAMES]

    def _is_asked_for(self, module: nn.Module) -> bool:
        has_parts = any(True for _ in module.children())
        return has_parts and any(True for _ in match(module.named_modules(), self._request.groups))
