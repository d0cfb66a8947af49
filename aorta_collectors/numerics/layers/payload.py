"""Full tensors of layers, one safetensors file a step (`trace: payload`).

They are those of the steps whose statistics are taken (`stats_every`), and in other steps what is found at once to be
bad, as in host memory. A tensor is copied when it is read, since the program may change it afterwards, and written when
its step is over; from a device the copy goes to pinned memory in the order of the program's stream, and is written once
it has arrived. What would lead beyond `payload_max_bytes` is left out, whole tensors at a time, and counted.

A file holds each tensor under "layer|direction|tensor_path", such as "h.0.attn|forward|[0]", with "|2" behind it for
the second call of the layer in the step. Its metadata tell the step and, as JSON by that name, the order (`seq`, as in
stats_<stem>.jsonl), the dtype and the shape of what was read. dtypes that safetensors does not have, and tensors that
are no strided numbers, are kept as what was read of them: see observe.readable.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.observe.device.rows import accelerator
from aorta_collectors.observe.device.streams import Device, apart
from aorta_collectors.observe.host_copies import Arrival, HostCopies
from aorta_collectors.observe.tensor_stats import dtype_name
from aorta_collectors.observe.whole_file import write_whole

# dtypes that every version of safetensors stores.
_STORED = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    }
)
# Steps whose copies have not arrived; the oldest of more is waited for.
_MOST_WAITING = 2


class _Past(NamedTuple):
    step: int
    tensors: dict[str, Tensor]
    about: dict[str, dict[str, Any]]
    arrival: Arrival


class Payload(Part):
    """The part that keeps them. LayerStats hands each tensor over.

    Args:
        place: Gives the directory and the stem of this process's files, None as long as they are not known.
        warn: Told once why files are not written.
        device_of: Gives the streams and memory of a device, None for one without.
        host: Types of devices whose memory is the host's.
    """

    def __init__(
        self,
        config: Config,
        place: Callable[[], tuple[Path, str] | None],
        warn: Callable[[str], None],
        *,
        device_of: Callable[[torch.device], Device | None] = accelerator,
        host: Container[str] = ("cpu",),
    ) -> None:
        self._copies = HostCopies(device_of, host)
        self._most = config.payload_max_bytes
        self._place = place
        self._warn = warn
        self._tensors: dict[str, Tensor] = {}
        self._about: dict[str, dict[str, Any]] = {}
        self._waiting: deque[_Past] = deque()
        self._counts = {"files": 0, "tensors": 0, "bytes": 0, "tensors_dropped": 0, "bytes_dropped": 0}
        self._taken = 0
        self._has_failed = False

    def keep(self, layer: str, direction: str, path: str, tensor: Tensor, values: Tensor | None, seq: int) -> None:
        """Copy a tensor as it is now.

        Args:
            values: What is read of it; None for an empty one.
            seq: Its place among the lines of the step.
        """
        if values is None:
            return
        is_as_stored = tensor.dtype in _STORED and tensor.layout is torch.strided and not tensor.is_nested
        if is_as_stored and tensor.dtype is not values.dtype:  # bool and float8, which are read as something else
            values = tensor.detach()
        elif values.dtype not in _STORED:
            values = values.double() if values.dtype is torch.uint64 else values.float()
        size = values.numel() * values.element_size()
        if self._taken + size > self._most or self._has_failed:
            self._drop(1, size)
            return
        copied = self._copies.copy(values)
        if copied is None:  # a CUDA graph is captured
            self._drop(1, size)
            return
        self._taken += size
        key = name = f"{layer}|{direction}|{path}"
        call = 1
        while key in self._tensors:
            call += 1
            key = f"{name}|{call}"
        self._tensors[key] = copied
        self._about[key] = {"seq": seq, "dtype": dtype_name(tensor.dtype), "shape": list(values.shape)}

    def step_ended(self, trace: StepTrace) -> None:
        if self._tensors:
            self._waiting.append(_Past(trace.step, self._tensors, self._about, self._copies.seal()))
            self._tensors, self._about = {}, {}
        while self._waiting:
            arrival = self._waiting[0].arrival
            is_due = trace.is_last or len(self._waiting) > _MOST_WAITING
            if not (arrival.is_there() or (is_due and arrival.wait())):
                break
            self._write(self._waiting.popleft())

    def fields(self) -> Mapping[str, Any]:
        return {"payload": dict(self._counts)}

    def _write(self, past: _Past) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in past.tensors.values())
        try:
            place = self._place()
            if place is None:
                raise FileNotFoundError("there is no directory to write to")
            directory, stem = place
            path = directory / f"payload_{stem}_step{past.step}.safetensors"
            write_whole(path, lambda partial: _save(partial, past))
        except Exception as error:  # as of a full disk, or without safetensors
            if not self._has_failed:
                self._has_failed = True
                self._warn(f"tensors of trace: payload are not written: {type(error).__name__}: {error}")
            self._drop(len(past.tensors), size)
            return
        self._counts["files"] += 1
        self._counts["tensors"] += len(past.tensors)
        self._counts["bytes"] += size

    def _drop(self, tensors: int, size: int) -> None:
        self._counts["tensors_dropped"] += tensors
        self._counts["bytes_dropped"] += size


def _save(path: Path, past: _Past) -> None:
    from safetensors.torch import save_file

    about = {key: json.dumps(told) for key, told in past.about.items()}
    with apart():
        save_file(past.tensors, path, {"step": str(past.step), **about})
