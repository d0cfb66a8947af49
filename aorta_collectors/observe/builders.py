"""Noticing a wrapped model the moment it is built, before its first step.

DistributedDataParallel and torchrec's DistributedModelParallel are the outermost modules of the runs they occur in,
so hooks can stand before the first forward. Any other model is found at its first call (`calls`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.observe.around import in_place_of

_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
    ("torchrec.distributed.model_parallel", "DistributedModelParallel"),
)


class BuildWatch:
    """Calls `built(module)` when the outermost of the wrappers' constructors has returned.

    DistributedModelParallel builds DistributedDataParallel inside its own constructor: only the outer one counts.
    Calls `compiled(module)` when module.compile() has been called.
    """

    def __init__(self, built: Callable[[nn.Module], None], compiled: Callable[[nn.Module], None]) -> None:
        self._built = built
        self._on_compile = compiled
        self._compile: Any = None
        self._depth = 0
        self._watches: list[ImportWatch] = []
        self._originals: list[tuple[type[nn.Module], Any, Any]] = []

    def start(self) -> None:
        for module, name in _WRAPPERS:
            watch = ImportWatch(module, functools.partial(self._wrap, module, name))
            self._watches.append(watch)
            watch.start()
        self._watch_compile()

    def stop(self) -> None:
        if self._compile is not None and vars(nn.Module)["compile"] is self._compile:
            _set(nn.Module, "compile", self._compile.__wrapped__)
        self._compile = None
        for watch in self._watches:
            watch.stop()
        for kind, original, ours in self._originals:
            # Somebody may have wrapped the constructor after us: theirs stays, and ours falls silent.
            if kind.__dict__.get("__init__") is ours:
                _set(kind, "__init__", original)
        self._watches, self._originals = [], []

    def _watch_compile(self) -> None:
        original: Any = nn.Module.compile

        def compile(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            if self._compile is not None:
                self._on_compile(module)
            return result

        self._compile = in_place_of(original, compile)
        _set(nn.Module, "compile", compile)

    def _wrap(self, module: str, name: str) -> None:
        kind = getattr(sys.modules[module], name, None)
        if not isinstance(kind, type):
            return
        original: Any = vars(kind)["__init__"]

        def init(instance: nn.Module, *args: Any, **kwargs: Any) -> None:
            self._depth += 1
            try:
                original(instance, *args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0 and self._originals:
                self._built(instance)

        self._originals.append((kind, original, in_place_of(original, init)))
        _set(kind, "__init__", init)


def _set(kind: type[nn.Module], name: str, function: Any) -> None:
    setattr(kind, name, function)
