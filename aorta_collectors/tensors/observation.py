"""What is observed of one tensor at one point: who it is, what was read of it, and the line that is written of that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.tensor_stats import NOTHING, TensorStats, dtype_name
from aorta_collectors.tensors.elements import Elements
from aorta_collectors.tensors.names import USER


class Subject(NamedTuple):
    """Which tensor is meant, the same in every run of the program.

    Attributes:
        point: Where it is observed.
        layer: Path of the module; empty for what belongs to none.
        module_type: Its class.
        kind: What it is of the module: input, output, output_gradient, parameter, gradient, user or user_gradient.
        path: Which tensor of a structured value, such as [0] or .logits; the parameter's own name.
        label: What the program itself calls it; empty otherwise.
    """

    point: str
    layer: str
    module_type: str
    kind: str
    path: str
    label: str = ""

    @property
    def name(self) -> str:
        """Such as after_forward:layers.0.output[1]."""
        if self.point == USER:
            return f"{'grad' if self.kind == 'user_gradient' else 'user'}:{self.label}{self.path}"
        if self.kind in ("parameter", "gradient"):
            return f"{self.point}:{self.layer}.{self.path}{'.grad' if self.kind == 'gradient' else ''}"
        kind = "output_grad" if self.kind == "output_gradient" else self.kind
        return f"{self.point}:{self.layer}.{kind}{self.path}"


class Place(NamedTuple):
    """Which code had run there.

    Attributes:
        compiled: Whether that of torch.compile had.
        graph, replay: The CUDA graph that it belongs to, and which of its replays it was; None outside.
    """

    compiled: bool = False
    graph: int | None = None
    replay: int | None = None


@dataclass
class Observation:
    """One tensor at one point.

    Attributes:
        invocation: How many times its name had come before.
        order: Its place among all observations of the process.
        stats: None as long as its values have not come over from a device, and where they cannot be read.
        digest: Of its elements; None likewise.
        unread: Why there is no digest; None where there is one.
        is_mask: Whether -Inf, if nothing worse is in it, were put there rather than computed.
        values: Its elements in host memory, while they are needed; their dtype is its own.
        keeps: Whether `values` are to be written.
        file, key: Where they are.
        left_out: Why values that were asked for are not kept.
    """

    subject: Subject
    invocation: int
    step: int
    order: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    device: str
    numel: int
    place: Place
    stats: TensorStats | None = None
    digest: str | None = None
    unread: str | None = None
    is_mask: bool = False
    values: Tensor | None = None
    keeps: bool = False
    file: str | None = None
    key: str | None = None
    left_out: str | None = None

    @classmethod
    def of(
        cls,
        subject: Subject,
        invocation: int,
        step: int,
        order: int,
        tensor: Tensor,
        elements: Elements,
        place: Place,
    ) -> Observation:
        """Of a tensor of which nothing has been read. Of one that is spread over ranks, this rank's part is meant."""
        whole = tensor if elements.exact is None else elements.exact
        shape, numel = _extent(whole, elements.numbers)
        device, unread = str(tensor.device), elements.reason or None
        return cls(subject, invocation, step, order, tensor.dtype, shape, device, numel, place, unread=unread)

    @property
    def is_bad(self) -> bool:
        """Whether it holds NaN, or Inf that nobody put there."""
        stats = self.stats
        return stats is not None and not (stats.is_finite or (self.is_mask and stats.only_negative_infinite))

    def line(self) -> dict[str, Any]:
        """As schemas/tensors.observation.json has it, without rank and process."""
        stats = self.stats or NOTHING
        return {
            "step": self.step,
            "order": self.order,
            "name": self.subject.name,
            "invocation": self.invocation,
            "point": self.subject.point,
            "layer": self.subject.layer,
            "module_type": self.subject.module_type,
            "kind": self.subject.kind,
            "tensor_path": self.subject.path,
            "dtype": dtype_name(self.dtype),
            "shape": list(self.shape),
            "device": self.device,
            "numel": self.numel,
            "digest": self.digest,
            "min": _finite(stats.finite_min),
            "max": _finite(stats.finite_max),
            "mean": _finite(stats.mean),
            "std": _finite(stats.std),
            "nan_count": stats.nan_count,
            "inf_count": stats.inf_count,
            "unread": self.unread,
            "file": self.file,
            "key": self.key,
            "left_out": self.left_out,
            "graph": self.place.graph,
            "replay": self.place.replay,
            "compiled": self.place.compiled,
        }


def _extent(whole: Tensor, numbers: Tensor | None) -> tuple[tuple[int, ...], int]:
    """Shape and number of elements."""
    try:
        return tuple(int(size) for size in whole.shape), int(whole.numel())
    except Exception:  # a nested tensor has no shape, and that of a jagged one no number for each dimension
        return ((), 0) if numbers is None else (tuple(numbers.shape), numbers.numel())


def attribute_path(path: str) -> str:
    """A path of observe.tensors as it stands behind what it is a part of: .logits for logits, [0] as it is."""
    return path if not path or path.startswith(("[", ".")) else f".{path}"


def _finite(number: float | None) -> float | None:
    """What sums up float64 near its ends may have run over."""
    return number if number is not None and math.isfinite(number) else None
