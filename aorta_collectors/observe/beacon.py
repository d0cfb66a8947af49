"""How a program's own call finds the session that observes its process, without anything being kept in a module.

A module may be imported twice, copied or pickled, and a process that is not observed must not pay for what might be. So
a session hangs a hook into torch, where a module registers a buffer: that happens when a model is built, and the hook
does nothing there. Who looks for a session goes through those hooks.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TypeVar

_REGISTRY = "_global_buffer_registration_hooks"

B = TypeVar("B", bound="Beacon")


class Beacon:
    """What can be found, between `light` and `put_out`, in the process that lit it. A collector derives its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._hook: Any = None

    def light(self) -> None:
        from torch.nn.modules.module import register_module_buffer_registration_hook

        self._pid = os.getpid()
        self._hook = register_module_buffer_registration_hook(self._registered)

    def put_out(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _registered(self, module: Any, name: str, buffer: Any) -> None:
        """A module has got a buffer."""

    @classmethod
    def find(cls: type[B]) -> B | None:
        """The one of this class that is lit in this process; None in a fork of it, and where nothing is observed."""
        hooks = getattr(sys.modules.get("torch.nn.modules.module"), _REGISTRY, None)
        for hook in list(hooks.values()) if hooks else ():
            beacon = getattr(hook, "__self__", None)
            if isinstance(beacon, cls) and beacon._pid == os.getpid():
                return beacon
        return None
