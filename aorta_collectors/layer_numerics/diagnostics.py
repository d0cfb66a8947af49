"""What is kept of the first bad value beyond its record: the tensor itself, and what the allocator did before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.observation import Observation

_MOST_EVENTS = 500_000


class TensorDump:
    """Saves one tensor, the first bad one, as it was when it was seen.

    Attributes:
        dumped: Whether that was done.
    """

    def __init__(self, directory: Path, stem: str, log: Callable[[str], None]) -> None:
        self._directory = directory
        self._stem = stem
        self._log = log
        self.dumped = False

    def save(self, step: int, seen: Observation, tensor: Tensor) -> None:
        """Write bad_tensor_step<S>_<layer>_<role>_rank<N>.pt, readable with torch.load(..., weights_only=True)."""
        if self.dumped:
            return
        layer = re.sub(r"[^A-Za-z0-9_()#\[\]-]", "_", seen.site.layer)[:150]
        path = self._directory / f"bad_tensor_step{step}_{layer}_{seen.site.role}_{self._stem}.pt"
        try:
            torch.save(tensor.cpu(), path)
        except Exception as error:
            self._log(f"WARNING: dump_tensor failed: {type(error).__name__}: {error}")
            return
        self.dumped = True
        num_bytes = tensor.numel() * tensor.element_size()
        self._log(f"dump_tensor -> {path} (shape={list(tensor.shape)}, dtype={tensor.dtype}, {num_bytes} bytes)")


class AllocatorTrace:
    """Records what the accelerator's caching allocator does, and writes it down once.

    Attributes:
        dumped: Whether that was done.
    """

    def __init__(self, log: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._log = log
        self._warn = warn
        self._recording = False
        self._tried = False
        self.dumped = False

    def start(self) -> None:
        """Begin to record. The accelerator has to be in use by now; without one, that is said once."""
        if self._tried:
            return
        self._tried = True
        try:
            if not torch.cuda.is_available():
                raise RuntimeError("there is no CUDA or ROCm device, whose allocator it records")
            torch.cuda.memory._record_memory_history(enabled="all", stacks="python", max_entries=_MOST_EVENTS)
        except Exception as error:
            self._warn(f"alloc_snapshot is inactive: {error}")
            return
        self._recording = True
        self._log("alloc_snapshot: recording; about 10% of a step for the Python stacks, kernels are not touched")

    def dump(self, path: Path) -> None:
        """Write the trace to `path` and stop recording. Does nothing if it was not recording."""
        if not self._recording:
            return
        self._recording = False
        try:
            dump: Any = torch.cuda.memory._dump_snapshot
            dump(str(path))
            self.dumped = True
            self._log(f"alloc_snapshot -> {path}")
        except Exception as error:
            self._warn(f"alloc_snapshot could not be written: {type(error).__name__}: {error}")
        self.stop()

    def stop(self) -> None:
        self._recording = False
        if self._tried and torch.cuda.is_available():
            try:
                torch.cuda.memory._record_memory_history(enabled=None)
            except Exception as error:
                self._warn(f"alloc_snapshot could not stop recording: {error}")
