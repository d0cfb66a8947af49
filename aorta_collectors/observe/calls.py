"""Which module call is the outermost one: the moment at which a step can begin.

Uses torch's global module hooks, the one public place through which each module call passes. While a model runs, an
inner call of one of its parts costs two comparisons here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

Entered = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]


class OutermostCalls:
    """Calls `entered(module, args, kwargs)` before each module call that no other module call encloses.

    What it returns replaces the call's positional arguments, unless it is None. Two threads that run models at once
    count as nested.

    Args:
        is_part: Whether a module is known to be part of a larger one. A call of anything else might be an outermost
            one although the last outermost call has not ended by torch's account: KeyboardInterrupt and other
            exceptions that are no Exception pass its hooks by. The stack tells then.
    """

    def __init__(self, entered: Entered, is_part: Callable[[nn.Module], bool]) -> None:
        self._entered = entered
        self._is_part = is_part
        self._current: nn.Module | None = None
        self._frame: FrameType | None = None
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
        self._current = self._frame = None

    def _before(self, module: nn.Module, args: Any) -> Any:
        if is_recording_program():
            return None
        current = self._current
        if current is not None:
            if module is not current and self._is_part(module):
                return None
            if self._is_running():
                return None
        caller = sys._getframe(1)
        self._current, self._frame = module, caller.f_back
        # torch hands a global hook no keyword arguments; they are a variable of the function that calls it.
        return self._entered(module, args, caller.f_locals.get("kwargs") or {})

    def _after(self, module: nn.Module, _args: Any, _result: Any) -> None:
        # The compiler must not see what comes after this question: it would track the running model a second time.
        if is_recording_program():
            return
        if self._current is module:
            # After an exception torch calls from one frame further out.
            caller = sys._getframe(1)
            if caller.f_back is self._frame or caller is self._frame:
                self._current = self._frame = None

    def _is_running(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame is self._frame:
                return True
            frame = frame.f_back
        return False


def is_recording_program() -> bool:
    """Whether torch is turning the program into a graph: what a hook does now would become part of it."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
