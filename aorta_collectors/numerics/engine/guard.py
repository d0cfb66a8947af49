"""Running what is ours inside of the program's own calls: never raising, and with its time counted as overhead."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.timeline import Timeline


class Guard:
    """Runs functions of ours.

    Args:
        timeline: Gets the time they take.
        warn: Told of the first exception.
    """

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        self._timeline = timeline
        self._warn = warn
        self._has_failed = False
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is to be observed: not in a fork of the program, nor while its compiler traces it."""
        return not torch.compiler.is_compiling() and os.getpid() == self._pid

    def __call__(self, function: Callable[..., None], *args: Any) -> None:
        began = perf_counter()
        try:
            function(*args)
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                self._warn(f"{type(error).__name__} in {function.__qualname__}: {error}")
        finally:
            self._timeline.hook_s += perf_counter() - began
