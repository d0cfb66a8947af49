"""Hiding our hooks where torch only asks whether there are any.

With a hook on all modules, torch.export takes another way into a model, one that its strict mode cannot go: it fails
(torch 2.13). Ours do nothing in a model that is exported, and need not be seen there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch.nn.modules import module as torch_module

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.observe.patches import Patches

_PACKAGE = __name__.partition(".")[0]
_FRAMES, _EXPORT = "torch._dynamo.convert_frame", "torch._dynamo.functional_export"
_NAME = "get_traced_fn"
_TABLES = ("_global_forward_pre_hooks", "_global_forward_hooks")


def is_own(hook: Any) -> bool:
    """Whether a hook is of this package."""
    return str(getattr(hook, "__module__", "")).partition(".")[0] == _PACKAGE


class OwnHooksHidden:
    """Stands around the function that finds what an export traces. torch._dynamo is never imported."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._watch: ImportWatch | None = None

    def start(self) -> None:
        self._watch = ImportWatch(_FRAMES, self._patch)
        self._watch.start()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        pairs, export = self._patches.pairs, sys.modules.get(_EXPORT)
        self._patches.undo()
        for original, ours in pairs:
            if export is not None and vars(export).get(_NAME) is ours:  # imported it by name meanwhile
                setattr(export, _NAME, original)

    def _patch(self) -> None:
        also = [sys.modules[name] for name in (_EXPORT,) if name in sys.modules]
        self._patches.put(sys.modules[_FRAMES], _NAME, self._around, also)

    def _around(self, original: Any) -> Callable[..., Any]:
        def get_traced_fn(*args: Any, **kwargs: Any) -> Any:
            if not self._patches.stand:
                return original(*args, **kwargs)
            tables = {name: getattr(torch_module, name) for name in _TABLES}
            try:
                for name, table in tables.items():
                    # Another table in its place, rather than less in this one: handles refer to it.
                    others = {key: hook for key, hook in table.items() if not is_own(hook)}
                    setattr(torch_module, name, type(table)(others))
                return original(*args, **kwargs)
            finally:
                for name, table in tables.items():
                    setattr(torch_module, name, table)

        return get_traced_fn
