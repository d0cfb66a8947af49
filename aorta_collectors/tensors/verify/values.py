"""Whether files of values hold what the lines say: each tensor, under its key, with its dtype, shape and bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import Artifacts, Verdict
from aorta_collectors.artifacts.lines import Line
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.errors import ArtifactError

# Larger ones are only there, and no smaller than what they are to hold.
MOST_READ_BYTES = 1 << 30
_HEADER_BYTES = 8
#: What safetensors calls dtypes, and the bytes of an element.
_NAMES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
_DTYPES = frozenset(name for name, _ in _NAMES.values())


def check_values(artifacts: Artifacts, values: Mapping[str, Mapping[str, Line]]) -> list[str]:
    """Look into the files that lines name.

    Returns:
        Names of files that are too large to be looked into.

    Raises:
        Fault: invalid.
    """
    unread = []
    for name, lines in values.items():
        size = artifacts.sizes().get(name)
        if size is None:
            raise Fault(Verdict.INVALID, f"{name} is missing: {len(lines)} tensor(s) are said to lie there")
        if size > MOST_READ_BYTES:
            unread.append(name)
            continue
        try:
            content = memoryview(artifacts.read(name, MOST_READ_BYTES))
        except ArtifactError as error:
            raise Fault(Verdict.INVALID, str(error)) from None
        for fault in _faults(content, lines):
            raise Fault(Verdict.INVALID, f"{name}: {fault}")
    return unread


def _faults(content: memoryview, lines: Mapping[str, Line]) -> Iterator[str]:
    try:
        header, data = _parsed(content)
    except ValueError as error:
        yield f"no safetensors: {error}"
        return
    for key, line in lines.items():
        entry = header.get(key)
        if not isinstance(entry, dict):
            yield f"{key} is not in there"
            continue
        try:
            yield from (f"{key}: {fault}" for fault in _faults_of(entry, line, data))
        except (KeyError, TypeError, ValueError) as error:
            yield f"{key}: {type(error).__name__}: {error}"


def _parsed(content: memoryview) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(content[:_HEADER_BYTES], "little")
    end = _HEADER_BYTES + length
    if len(content) < end:
        raise ValueError("it is torn off")
    header = strict_json.loads(bytes(content[_HEADER_BYTES:end]))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header, content[end:]


def _faults_of(entry: Mapping[str, Any], line: Line, data: memoryview) -> Iterator[str]:
    begin, end = entry["data_offsets"]
    dtype, element_bytes = _NAMES[entry["dtype"]]
    shape = list(entry["shape"])
    if not 0 <= begin <= end <= len(data):
        yield f"reaches from {begin} to {end} of {len(data)} bytes"
    elif math.prod(shape) * element_bytes != end - begin:
        yield f"{end - begin} bytes for {shape} of {dtype}"
    elif dtype != line["dtype"]:
        # What has no name of its own there lies there as bytes.
        if dtype != "uint8" or line["dtype"] in _DTYPES or shape[:-1] != line["shape"]:
            yield f"{shape} of {dtype}, but the line says {line['shape']} of {line['dtype']}"
    elif shape != line["shape"]:
        yield f"{shape}, but the line says {line['shape']}"
    if line["digest"] is not None and f"sha256:{hashlib.sha256(data[begin:end]).hexdigest()}" != line["digest"]:
        yield f"its bits are not those of {line['digest']}"
