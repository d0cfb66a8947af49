"""The sites of one module, each made when something is first read there."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.observation import Site


class ModuleSites:
    """Of the module at `path`, of which records of `channels` were asked for.

    Args:
        bounds: Allowed range, or None.
    """

    def __init__(
        self,
        module: nn.Module,
        path: str,
        module_path: str,
        channels: frozenset[str],
        bounds: tuple[float, float] | None,
    ) -> None:
        self._path = path
        self._module_path = module_path
        self._channels = channels
        self._bounds = bounds
        self._num_values = _num_values(module)
        self._made: dict[tuple[str, str], Site] = {}
        # The two that most calls need.
        self._act: Site | None = None
        self._igrad: Site | None = None

    @property
    def act(self) -> Site:
        """Of an output that is a tensor."""
        if self._act is None:
            self._act = self.of("fwd", "act", "", is_flow=True)
        return self._act

    @property
    def igrad(self) -> Site:
        """Of the gradient of the first argument."""
        if self._igrad is None:
            self._igrad = self.of("bwd", "igrad", "[0]", is_flow=True)
        return self._igrad

    def of(self, direction: str, role: str, path: str, *, is_flow: bool = False) -> Site:
        """Where a tensor is read: `path` says which of a structured value, or names a buffer.

        Args:
            is_flow: Whether it counts as the module's call, as the stock logger counts: of a call the value itself, or
                the first element of a tuple.
        """
        site = self._made.get((role, path))
        if site is None:
            site = self._made[role, path] = Site(
                self._path,
                direction,
                role,
                param=path if role == "buffer" else "",
                module_path=self._module_path,
                tensor_path="" if role == "buffer" else path,
                bounds=self._bounds,
                recorded=role in self._channels,
                is_flow=is_flow and role in self._channels,
                num_values=self._num_values,
            )
        return site


def _num_values(module: nn.Module) -> int | None:
    """Parameters and buffers of a module; None where it has parts, with more of them."""
    if any(True for _ in module.children()):
        return None
    buffers = [buffer for buffer in module.buffers(recurse=False) if buffer is not None]
    return sum(param is not None for param in module._parameters.values()) + sum(
        not is_lazy(buffer) and buffer.is_floating_point() for buffer in buffers
    )
