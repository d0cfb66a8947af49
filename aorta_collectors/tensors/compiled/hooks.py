"""The global hooks of modules that torch.compile traces into a program's graphs."""

from __future__ import annotations

from typing import Any

from torch.nn.modules import module as torch_module

from aorta_collectors.tensors.compiled import traced


class TracedHooks:
    """Nothing is hung on a module, and outside of what is being compiled these hooks do nothing."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def __bool__(self) -> bool:
        """Whether they hang."""
        return bool(self._handles)

    def hang(self, *, inputs: bool) -> None:
        """
        Args:
            inputs: Whether what modules are called with is handed out too.
        """
        register: Any = torch_module.register_module_forward_hook
        if inputs:
            self._handles = [
                torch_module.register_module_forward_pre_hook(traced.before_call),
                register(traced.after_call_with_keywords, with_kwargs=True),
            ]
        else:
            self._handles = [register(traced.after_call)]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
            # torch forgets this, and takes it for a hook.
            getattr(torch_module, "_global_forward_hooks_with_kwargs", {}).pop(handle.id, None)
        self._handles = []
