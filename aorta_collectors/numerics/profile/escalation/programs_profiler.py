"""Keeping out of the way of a profiler that the program runs: torch has room for one on a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

from aorta_collectors.observe.patches import Patches


class ProgramsProfiler:
    """Knows whether the program prepares or runs one, by standing around the functions that all of torch's go through.

    Args:
        yields: Called when it is about to, before torch is: our own has to stop.
    """

    def __init__(self, yields: Callable[[], None]) -> None:
        self._yields = yields
        self._patches = Patches()
        self._is_ours = False
        self._runs = False

    @property
    def is_there(self) -> bool:
        enabled = getattr(torch.autograd, "_profiler_enabled", None)
        return self._runs or (enabled is not None and bool(enabled()))

    def start(self) -> None:
        self._patches.put(profiler, "_prepare_profiler", self._around_beginning)
        self._patches.put(profiler, "_enable_profiler", self._around_beginning)
        self._patches.put(profiler, "_disable_profiler", self._around_end)

    def stop(self) -> None:
        self._patches.undo()

    def ours(self, function: Callable[[], None]) -> None:
        """Call what starts or stops our own."""
        self._is_ours = True
        try:
            function()
        finally:
            self._is_ours = False

    def _around_beginning(self, original: Any) -> Any:
        def begin(*args: Any, **kwargs: Any) -> Any:
            if self._patches.stand and not self._is_ours:
                self._yields()
                self._runs = True
            return original(*args, **kwargs)

        return begin

    def _around_end(self, original: Any) -> Any:
        def end(*args: Any, **kwargs: Any) -> Any:
            if self._patches.stand and not self._is_ours:
                self._runs = False
            return original(*args, **kwargs)

        return end
