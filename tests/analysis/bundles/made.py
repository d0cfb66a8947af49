"""Bundles made up tensor by tensor and point by point, to the schemas: for what no real program does on demand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

Line = dict[str, Any]
_KINDS = {"input": "before_forward", "output": "after_forward", "output_gradient": "after_backward"}
_KINDS |= {"gradient": "after_backward", "parameter": "after_step", "user": "user"}
_SUFFIXES = {"output_gradient": "output_grad", "parameter": "weight", "gradient": "weight.grad"}


def tensor(
    layer: str, value: Tensor, *, kind: str = "output", step: int = 1, invocation: int | None = None, keep: bool = False
) -> dict[str, Any]:
    """One observation; `tensors` adds what depends on the others."""
    name = f"{_KINDS[kind]}:{layer}.{_SUFFIXES.get(kind, kind)}"
    name = f"user:{layer}" if kind == "user" else name
    return {"name": name, "layer": layer, "kind": kind, "value": value, "step": step, "at": invocation, "keep": keep}


def _line(order: int, stem: str, made: Mapping[str, Any]) -> Line:
    value: Tensor = made["value"]
    flat = (torch.view_as_real(value) if value.is_complex() else value).to(torch.float64).reshape(-1)
    finite = flat[flat.isfinite()]
    file = f"values_{stem}_step{made['step']}.safetensors" if made["keep"] else None
    invocation = made["step"] - 1 if made["at"] is None else made["at"]
    return {
        "step": made["step"],
        "order": order,
        "name": made["name"],
        "invocation": invocation,
        "point": _KINDS[made["kind"]],
        "layer": made["layer"],
        "module_type": "Linear",
        "kind": made["kind"],
        "tensor_path": "",
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "device": "cpu",
        "numel": value.numel(),
        "digest": f"sha256:{hashlib.sha256(_bytes(value)).hexdigest()}",
        "min": finite.min().item() if finite.numel() else None,
        "max": finite.max().item() if finite.numel() else None,
        "mean": finite.mean().item() if finite.numel() else None,
        "std": finite.std(correction=0).item() if finite.numel() else None,
        "nan_count": int(flat.isnan().sum()),
        "inf_count": int(flat.isinf().sum()),
        "unread": None,
        "file": file,
        "key": f"{made['name']}#{invocation}" if file else None,
        "left_out": None,
        "graph": None,
        "replay": None,
        "compiled": False,
    }


def _bytes(value: Tensor) -> bytes:
    return bytes(value.contiguous().reshape(-1).view(torch.uint8).tolist())


def manifest(collector: str, rank: int, ranks: int, **fields: Any) -> dict[str, Any]:
    """summary_rank<N>.json with all that its schema asks for."""
    own: dict[str, Any] = {"history": {"host": "state only"}, "files": {}, "points": {}, "devices": {}}
    if collector == "tensors":
        own = dict.fromkeys(("tensors_observed", "tensors_nonfinite", "tensors_left_out", "lines_dropped"), 0)
        own |= {"backward_passes": 0, "lines_written": 0, "first_nonfinite": None, "tensors_passed_over": {}}
        own |= {"values": dict.fromkeys(("files", "tensors", "bytes", "tensors_lost"), 0), "points": {}}
    return {
        "schema_version": 1,
        "engine": "test",
        "run_id": None,
        "status": "complete",
        "ended_by": "exit",
        "started_at": "2026-01-01T00:00:00+00:00",
        "rank": rank,
        "world_size": ranks,
        "host": "here",
        "pid": 100 + rank,
        "warnings": [],
        "write_error": None,
        "config": {},
        "environment": {},
        "seeds": {"armed": None, "first_call": None},
        "steps_seen": 1,
        "roots": ["Model"],
        "watched_count": 1,
        "hook_errors": 0,
        "unmatched_scope": [],
        **own,
        **fields,
    }


def _write(directory: Path, name: str, lines: Sequence[Line]) -> None:
    (directory / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def tensors(
    directory: Path,
    made: Sequence[Mapping[str, Any]],
    *,
    rank: int = 0,
    ranks: int = 1,
    pid: int | None = None,
    **fields: Any,
) -> Path:
    """What one process left of its tensors, in the order given.

    Args:
        pid: Of a further process of the rank.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"rank{rank}" if pid is None else f"rank{rank}_p{pid}"
    identity = {"rank": rank, "pid": pid or 100 + rank}
    lines = [{**identity, **_line(order, stem, each)} for order, each in enumerate(made)]
    values: dict[str, dict[str, Tensor]] = {}
    for line, each in zip(lines, made, strict=True):
        if line["file"]:
            value = each["value"].clone(memory_format=torch.contiguous_format)
            stored = value.reshape(*value.shape, 1).view(torch.uint8) if value.is_complex() else value
            values.setdefault(line["file"], {})[line["key"]] = stored
    for file, of_step in values.items():
        save_file(of_step, directory / file)
    _write(directory, f"tensors_{stem}.jsonl", lines)
    summary = manifest("tensors", rank, ranks, **{"pid": identity["pid"], **fields})
    (directory / f"summary_{stem}.json").write_text(json.dumps(summary))
    return directory


def device(name: str = "cuda:0", *, private: tuple[int, int] = (0, 0), **numbers: int) -> dict[str, Any]:
    """A device of a point.

    Args:
        private: Bytes that a private pool has reserved, and of these the active ones.
    """
    allocated = numbers.get("allocated", 0)
    reserved = numbers.get("reserved", allocated) + private[0]
    found = {"allocated": allocated, "active": allocated, "requested": allocated, "reserved": reserved}
    found |= {"inactive": reserved - allocated, "peak_allocated": allocated, "peak_reserved": reserved, "retries": 0}

    def pool(name: str, kind: str, reserved: int, active: int) -> dict[str, Any]:
        sizes = {"reserved": reserved, "allocated": active, "active": active, "requested": active}
        rest = {"segments": 1, "inactive": reserved - active, "largest_inactive": reserved - active}
        return {"pool": name, "kind": kind, "stream": 0, **sizes, **rest}

    pools = [pool("0,0", "default", reserved - private[0], allocated - private[1])]
    pools += [pool("1,0", "private", *private)] if private[0] else []
    return {"device": name, **found, "history": "state only", "pools": pools}


def point(step: int, name: str, rss: int, devices: Sequence[dict[str, Any]] = (), python: int | None = None) -> Line:
    """One point, at which the process has `rss` bytes; `memory` adds the process."""
    host = {"rss": rss, "shared": 0, "anonymous": rss, "swap": 0, "peak_rss": rss, "python": python}
    kind = name.partition(":")[0]
    return {"step": step, "name": name, "point": kind, "layer": "", "host": host, "devices": list(devices)}


def memory(
    directory: Path,
    points: Sequence[Line],
    *,
    rank: int = 0,
    ranks: int = 1,
    growth: Sequence[Line] = (),
    **fields: Any,
) -> Path:
    """What one process left of its memory, in the order given."""
    directory.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    lines = []
    for order, each in enumerate(points):
        invocation = counts.get(each["name"], 0)
        counts[each["name"]] = invocation + 1
        identity = {"rank": rank, "pid": 100 + rank, "order": order, "invocation": invocation, "time_ns": order}
        lines.append({**each, **identity})
    _write(directory, f"memory_rank{rank}.jsonl", lines)
    if growth:
        _write(directory, f"growth_rank{rank}.jsonl", [{"rank": rank, "pid": 100 + rank, **each} for each in growth])
    (directory / f"summary_rank{rank}.json").write_text(json.dumps(manifest("memory", rank, ranks, **fields)))
    return directory


def grown(step: int, since: str, until: str, size: int, file: str = "train.py", line: int = 7) -> Line:
    """What one stack took on the host between two points."""
    frames = [{"file": file, "line": line, "function": None}]
    place = {"order": 0, "invocation": 0}
    return {
        "step": step,
        "memory": "host",
        "source": "tracemalloc",
        "since": {**place, "name": since},
        "until": {**place, "name": until},
        "complete": True,
        "bytes": size,
        "allocated": None,
        "freed": None,
        "grown_stacks": 1,
        "stacks": [{"bytes": size, "count": 1, "frames": frames, "lifetimes": None}],
        "released": None,
    }
