"""Captures made up value by value, in the files of layer_numerics: for what no real program does on demand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def record(
    step: int,
    layer: str = "a",
    *,
    seq: int = 0,
    role: str = "act",
    direction: str = "fwd",
    high: float | None = 1.0,
    low: float | None = None,
    nans: int = 0,
    infs: int = 0,
    huge: int = 0,
    dtype: str = "torch.float32",
    **more: Any,
) -> Record:
    """A line of layers_rank<N>.jsonl of 8 elements; `write` adds the process.

    Args:
        high: Largest finite value; None where nothing is finite.
        low: Smallest; -high where it is left out.
    """
    low = low if low is not None or high is None else -high
    bad = bool(nans or infs or huge)
    return {
        "type": "layer_step",
        "step": step,
        "phase": "forward",
        "batch_id": None,
        "layer_name": layer,
        "module_path": layer,
        "direction": direction,
        "role": role,
        "param_name": "",
        "tensor_path": "",
        "seq": seq,
        "invocation": 1,
        "optimizer_step": step - 1,
        "value_is_from_prev_step": False,
        "shape": [2, 4],
        "dtype": dtype,
        "tf32_path": False,
        "matmul_calls_so_far": seq,
        "t": step + seq / 1000,
        "nan_count": nans,
        "inf_count": infs,
        "finite_count": 8 - nans - infs if high is not None else 0,
        "huge_count": huge,
        "finite_abs_max": None if high is None or low is None else max(abs(high), abs(low)),
        "finite_max": high,
        "finite_min": low,
        "numel": 8,
        "bad": bad,
        **more,
    }


def write(
    directory: Path, ranks: Mapping[int, Sequence[Record]], summaries: Mapping[int, Mapping[str, Any]] | None = None
) -> Path:
    """Write what ranks would, into a directory as NANLOG_DIR names one. Returns the directory.

    Args:
        summaries: Further fields of a rank's summary.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for rank, records in ranks.items():
        identity = {"rank": rank, "gpu": rank, "host": "here", "pid": 1000 + rank}
        lines = [{**entry, **identity} for entry in records]
        assert all(math.isfinite(entry["t"]) for entry in lines)
        name = f"layers_rank{rank}.jsonl"
        (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        first_bad = next((line for line in lines if line["bad"]), None)
        summary = {
            "schema_version": 1,
            "run_id": None,
            "status": "complete",
            "ended_by": "exit",
            "restart": 0,
            **{key: identity[key] for key in ("rank", "host", "pid")},
            "world_size": len(ranks),
            "steps_seen": max((line["step"] for line in lines), default=0),
            "records_written": len(lines),
            "first_bad": None if first_bad is None else _short(first_bad),
            "watched_count": len({line["layer_name"] for line in lines}),
            "watched_names": sorted({line["layer_name"] for line in lines}),
            "channels": sorted({line["role"] for line in lines}),
            "jsonl": str(directory / name),
            **(summaries or {}).get(rank, {}),
        }
        (directory / f"summary_rank{rank}.json").write_text(json.dumps(summary, indent=1))
    return directory


def _short(line: Mapping[str, Any]) -> dict[str, Any]:
    kind = "nan" if line["nan_count"] else "inf" if line["inf_count"] else "huge"
    keys = ("step", "direction", "role", "module_path", "tensor_path", "param_name", "matmul_calls_so_far", "seq")
    return {"layer": line["layer_name"], "kind": kind, **{key: line[key] for key in keys}}
