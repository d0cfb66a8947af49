"""The stock logger as a variant: put on a model for a block and taken off again.

It finds its model when DistributedModelParallel is built, once for the life of a process, and cannot be disarmed. So
its file is loaded as a module of its own, put on the model as its documentation says for plain models, and
afterwards the hooks that it left are removed. What it does in a step is its own code, unchanged.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from aorta.instrumentation.layer_numerics import SCRIPT_PATH
from torch import nn

_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")


class Stock:
    """A copy of the stock logger with its own state.

    Args:
        variables: NANLOG_* variables, which it reads when it is loaded.

    Attributes:
        counted: Records written so far.
    """

    def __init__(self, model: nn.Module, directory: Path, variables: dict[str, str] | None = None) -> None:
        self._model = model
        self._logger: Any = _load({"NANLOG_DIR": str(directory), **(variables or {})})

    @property
    def counted(self) -> int:
        return int(self._logger._records_written)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        before = {module: _hooks(module) for module in self._model.modules()}
        self._logger._attach(self._model)
        self._model.register_forward_pre_hook(self._logger._root_pre_hook)
        try:
            yield
        finally:
            self._logger._drain_step()
            self._logger._watched_names.clear()
            for module, (kept, full) in before.items():
                for table, keys in zip(_TABLES, kept, strict=True):
                    hooks = getattr(module, table)
                    for key in [key for key in hooks if key not in keys]:
                        del hooks[key]
                module._is_full_backward_hook = full


def _hooks(module: nn.Module) -> tuple[list[set[int]], bool | None]:
    return [set(getattr(module, table)) for table in _TABLES], module._is_full_backward_hook


def _load(variables: dict[str, str]) -> ModuleType:
    spec = importlib.util.spec_from_file_location("stock_logger", SCRIPT_PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    kept = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("NANLOG_")]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        spec.loader.exec_module(module)
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return module
