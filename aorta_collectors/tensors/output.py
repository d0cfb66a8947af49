"""What one process writes of its observations: a line each, and the values of a step in a file of safetensors.

A file holds each tensor under the key that its line names, "name#invocation" or what comes near to it. What safetensors
cannot store in every version of it, such as complex numbers, is stored as bytes, with one more dimension that has those
of an element: `.view(dtype)` with the dtype of the line, and the line's shape, make it what it was. The file's metadata
tell the step and, as JSON by the key, dtype and shape. It is there, whole, before the first line that names it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.device.streams import apart
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.tensor_stats import dtype_name
from aorta_collectors.observe.whole_file import write_whole
from aorta_collectors.tensors.names import NOT_WRITTEN
from aorta_collectors.tensors.observation import Observation
from aorta_collectors.torch_collector.told import replaced

# dtypes that every version of safetensors stores.
_STORED = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    }
)


class Output:
    """The files of one process, in its place. Those of an earlier launch are replaced.

    Args:
        warn: Told that files are replaced, and once why values are not written.
    """

    def __init__(self, place: Place, warn: Callable[[str], None]) -> None:
        left = list(place.records.parent.glob(f"values_{place.stem}_step*.safetensors"))
        for told in replaced(place.records, left):
            warn(told)
        self.lines = RecordFile(place.records)
        self._place = place
        self._warn = warn
        self._identity = {"rank": place.rank, "pid": os.getpid()}
        self._parts: dict[int, int] = {}
        self._counts = {"files": 0, "tensors": 0, "bytes": 0, "tensors_lost": 0}
        for left_over in left:
            with contextlib.suppress(OSError):
                left_over.unlink()

    def take_in(self, step: int, observations: Sequence[Observation]) -> None:
        """Write observations of one step, in their order."""
        kept = {
            _key_of(observation): observation
            for observation in observations
            if observation.keeps and observation.values is not None
        }
        if kept:
            self._write_values(step, kept)
        self.lines.append([_encoded({**self._identity, **observation.line()}) for observation in observations])

    def fields(self) -> dict[str, Any]:
        """For the summary."""
        return {"lines_written": self.lines.written, "values": dict(self._counts)}

    def _write_values(self, step: int, kept: Mapping[str, Observation]) -> None:
        part = self._parts.get(step, 0) + 1
        self._parts = {step: part}  # a step does not come back
        name = f"values_{self._place.stem}_step{step}{f'_part{part}' if part > 1 else ''}.safetensors"
        tensors: dict[str, Tensor] = {}
        about = {"step": str(step)}
        for key, observation in kept.items():
            assert observation.values is not None
            tensors[key] = observation.values
            about[key] = json.dumps({"dtype": dtype_name(observation.dtype), "shape": list(observation.shape)})
        try:
            with apart():
                stored = {key: _stored(values) for key, values in tensors.items()}
                write_whole(self.lines.path.with_name(name), lambda path: _save(stored, path, about))
        except Exception as error:  # as of a full disk
            # safetensors ends with the path of a file that it has made itself, and is gone.
            why = f"{type(error).__name__}: {error}".partition(" at path ")[0]
            if not self._counts["tensors_lost"]:
                self._warn(f"values are not written: {why}")
            self._counts["tensors_lost"] += len(kept)
            for observation in kept.values():
                observation.values, observation.left_out = None, f"{NOT_WRITTEN} ({why})"
            return
        self._counts["files"] += 1
        self._counts["tensors"] += len(kept)
        self._counts["bytes"] += sum(values.numel() * values.element_size() for values in tensors.values())
        for key, observation in kept.items():
            observation.values, observation.file, observation.key = None, name, key


def _key_of(observation: Observation) -> str:
    name = observation.subject.name
    try:
        name.encode()
    except UnicodeEncodeError:  # as of half a character, which Python allows in a name and safetensors does not
        name = f"{name.encode(errors='backslashreplace').decode()}@{observation.order}"
    return f"{name}#{observation.invocation}"


def _stored(values: Tensor) -> Tensor:
    if values.dtype in _STORED:
        return values
    return values.reshape(*values.shape, 1).view(torch.uint8)


def _save(tensors: dict[str, Tensor], path: Any, about: dict[str, str]) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path, about)


def _encoded(line: Mapping[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"))
