"""Slots of the package torch-cudagraph-debug, where it is installed: the one place that knows its API.

Used of it: TensorProbe, RecordAction and what a snapshot tells. Its snapshots wait for the replay.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

_PACKAGE = "torch_cudagraph_debug"
_KNOWN = "0.2."


def installed() -> str | None:
    """Its version; None where there is none, or one whose API is not known."""
    if torch.version.cuda is None:
        return None
    try:
        version = str(importlib.import_module(_PACKAGE).__version__)
    except Exception:  # one that is built for another torch may raise anything
        return None
    return version if version.startswith(_KNOWN) else None


class ProbeSlots:
    """A probe of one graph.

    Args:
        number: Of the graph.
        most_bytes: Of all of its tensors.
    """

    def __init__(self, number: int, most_bytes: int) -> None:
        package: Any = importlib.import_module(f"{_PACKAGE}.tensor_debug")
        self._left = most_bytes
        self._count = 0
        self._probe: Any = package.TensorProbe(f"graph {number}", [package.RecordAction()], non_contiguous="copy")

    def put(self, tensor: Tensor) -> bool:
        size = tensor.numel() * tensor.element_size()
        if size > self._left:
            return False
        self._probe(tensor, name=f"slot {self._count}")
        self._left -= size
        self._count += 1
        return True

    def read(self) -> list[Tensor]:
        """In host memory."""
        if not self._count:
            return []
        snapshot = self._probe.snapshot(synchronize=torch.cuda.current_stream())
        return [observation.tensor() for observation in sorted(snapshot.observations, key=lambda each: each.order)]

    def close(self) -> None:
        self._probe.close(synchronize=False)
