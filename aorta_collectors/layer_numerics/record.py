"""One line of layers_rank<N>.jsonl from one observation, and the short form in which the summary names it."""

from __future__ import annotations

import math
from typing import Any

import torch

from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.precision import headroom


class RecordMaker:
    """Builds records. Fields that only an option adds are there where that option is on.

    Args:
        identity: Fields that all records of this process share: rank, gpu, host, pid.
        bounded: Whether ranges are checked, so that each record says how many elements lie outside.
        locate: Whether each record says how many rows hold a bad element.
        bad_values: Whether a bad record names its first bad element.
    """

    def __init__(self, identity: dict[str, Any], *, bounded: bool, locate: bool, bad_values: bool) -> None:
        self._identity = identity
        self._bounded = bounded
        self._locate = locate
        self._bad_values = bad_values

    def record(self, step: int, seq: int, seen: Observation) -> dict[str, Any]:
        site, stats, moment = seen.site, seen.stats, seen.moment
        record = {
            "type": "layer_step",
            "step": step,
            "phase": moment.phase,
            "batch_id": moment.batch_id,
            **self._identity,
            "layer_name": site.layer,
            "module_path": site.module_path,
            "direction": site.direction,
            "role": site.role,
            "param_name": site.param,
            "tensor_path": site.tensor_path,
            "seq": seq,
            "invocation": moment.invocation,
            "optimizer_step": moment.optimizer_step,
            "value_is_from_prev_step": site.from_prev_step,
            "shape": [int(size) for size in seen.shape],
            "dtype": str(seen.dtype),
            "tf32_path": uses_tf32(seen),
            "matmul_calls_so_far": seen.calls,
            "t": seen.time,
            "nan_count": stats.nan_count,
            "inf_count": stats.inf_count,
            "finite_count": stats.finite_count,
            "huge_count": stats.huge_count,
            "finite_abs_max": stats.finite_abs_max,
            "finite_max": stats.finite_max,
            "finite_min": stats.finite_min,
            "numel": stats.numel,
            "bad": stats.bad,
        }
        if moment.checkpoint:
            record["checkpoint"] = moment.checkpoint
        if moment.recompute:
            record["recompute"] = True
        bits = headroom(seen.dtype, stats.finite_abs_max)
        if bits is not None:
            record["headroom"] = round(bits, 3)
        if self._bounded:
            record["oob_count"] = stats.oob_count
        if self._locate:
            record["bad_rows"] = stats.location.bad_rows if stats.location is not None else 0
        if self._bad_values and stats.bad and stats.location is not None:
            record["first_bad_flat_idx"] = stats.location.flat_index
            record["first_bad_row"] = stats.location.row
            record["first_bad_col"] = stats.location.column
            record["first_bad_value"] = _json_number(stats.location.value)
        if seen.extra is not None:
            record.update(seen.extra)
        return record


def fingerprint(step: int, seen: Observation) -> dict[str, Any]:
    """What is said of the first bad observation: the stock logger's five fields, and what tells the place apart."""
    return {
        "step": step,
        "layer": seen.site.layer,
        "direction": seen.site.direction,
        "kind": seen.stats.kind,
        "matmul_calls_so_far": seen.calls,
        "role": seen.site.role,
        "param_name": seen.site.param,
        "module_path": seen.site.module_path,
        "tensor_path": seen.site.tensor_path,
        "phase": seen.moment.phase,
        "batch_id": seen.moment.batch_id,
        "checkpoint": seen.moment.checkpoint or None,
        "invocation": seen.moment.invocation,
        "optimizer_step": seen.moment.optimizer_step,
    }


def uses_tf32(seen: Observation) -> bool:
    """Whether a matmul of this tensor may use TF32."""
    return seen.dtype is torch.float32 and tf32_allowed()


def tf32_allowed() -> bool:
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:
        return False  # torch refuses to say once a program has used its newer fp32_precision setting


def _json_number(value: float | None) -> float | str | None:
    """JSON has no NaN and no Inf: they are named, as the stock logger names them."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
