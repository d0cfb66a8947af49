"""Which module call is the outermost one: the moment at which a step can begin.

Uses torch's global module hooks, the one public place through which each module call passes. While a model runs, an
inner call costs one comparison here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module


class OutermostCalls:
    """Calls `entered(module, args)` before each module call that no other module call encloses.

    What it returns replaces the call's positional arguments, unless it is None.

    Two threads that run models at once count as nested. A call that ended by KeyboardInterrupt leaves no trace in
    torch's hooks, so a new call of the same module always counts as outermost.
    """

    def __init__(self, entered: Callable[[nn.Module, tuple[Any, ...]], Any]) -> None:
        self._entered = entered
        self._current: nn.Module | None = None
        self._handles: list[Any] = []

    def start(self) -> None:
        self._handles = [
            torch_module.register_module_forward_pre_hook(self._before),
            torch_module.register_module_forward_hook(self._after, always_call=True),
        ]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._current = None

    def _before(self, module: nn.Module, args: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        current = self._current
        if current is None or current is module:
            self._current = module
            return self._entered(module, args)
        return None

    def _after(self, module: nn.Module, _args: Any, _result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._current is module:
            self._current = None
