"""Call something the moment a module has been imported, without importing it.

Runs inside the observed program. Importing torch on the program's behalf would be visible: a script may set
CUDA_VISIBLE_DEVICES or OMP_NUM_THREADS before its own `import torch`. So arming waits for the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _NotifyingLoader(Loader):
    """Delegates to the module's own loader, then reports that the module is there."""

    def __init__(self, loader: Loader, spec: ModuleSpec, imported: Callable[[], None]) -> None:
        self._loader, self._spec, self._imported = loader, spec, imported

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: pickling, resources and inspect look at __spec__ and __loader__.
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._imported()


class ImportWatch(MetaPathFinder):
    """Runs `callback` once, right after `name` has been imported, or at once if it already is.

    The callback must not raise: it runs inside somebody else's import statement.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self._callback: Callable[[], None] | None = callback
        self._searching = False

    def start(self) -> None:
        module = sys.modules.get(self.name)
        spec = getattr(module, "__spec__", None)
        # A module that is only half-way through its own import is in sys.modules too.
        if module is not None and not getattr(spec, "_initializing", False):
            self._imported()
        else:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Forget the callback. Safe to call at any time, and again."""
        self._callback = None
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Two watches of one module ask each other; each wraps the loader once.
        if fullname != self.name or self._searching:
            return None
        self._searching = True
        try:
            return self._find(fullname, path, target)
        finally:
            self._searching = False

    def _find(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(fullname, path, target) if find_spec else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _NotifyingLoader(spec.loader, spec, self._imported)
                return spec
        return None

    def _imported(self) -> None:
        callback = self._callback
        self.stop()
        if callback is not None:
            callback()
