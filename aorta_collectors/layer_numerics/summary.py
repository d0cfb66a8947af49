"""The fields of summary_rank<N>.json, in the stock logger's names and meanings; schemas/layer_numerics.summary.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.record import tf32_allowed
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.observe.compiling.hidden_calls import graph_breaks
from aorta_collectors.observe.followed.following import Following
from aorta_collectors.observe.glimpse import Glimpse
from aorta_collectors.observe.observation import RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.origin import OriginFinder

_NOTES = (
    "first_bad is the first NaN, Inf or huge value in order of step and observation, or null. matmul_calls_so_far "
    "counts watched activations and input gradients."
)


def observed_fields(observer: Observer, roots: Sequence[RootInfo], roots_cut: int) -> dict[str, Any]:
    names = [name for root in roots for name in root.watched_names]
    found = observer.roots
    unmatched = [index for index in range(observer.num_groups) if index not in found.groups_matched]
    return {
        "steps_seen": observer.step,
        "evaluation_steps": observer.evaluations,
        "matmul_calls_total": observer.reader.calls,
        "tensors_observed": sum(observer.reader.observed.values()),
        "observed_by_role": dict(observer.reader.observed),
        "tensors_unreadable": observer.reader.num_skipped,
        "tensors_skipped": {
            reason: {"count": count, "layers": layers} for reason, (count, layers) in observer.reader.skipped.items()
        },
        "hook_errors": observer.errors,
        "first_hook_error": observer.first_error,
        "overhead": observer.cost.fields(),
        **observer.cost.step_times(),
        "roots": [root.label for root in roots],
        "roots_cut": roots_cut,
        "modules_built": found.modules_built,
        "watched_count": len(names),
        "watched_names": names,
        "unobserved_names": found.unobserved(),
        "opaque_names": list(found.opaque),
        "graph_breaks": graph_breaks(),
        "unmatched_groups": unmatched,
        "unmatched_bounds": observer.unmatched_bounds,
        "params_scanned": sum(root.params_scanned for root in roots),
        "grad_params_planned": sum(root.grad_params_planned for root in roots),
        "grad_records_stashed": observer.training.grads_observed,
        "optimizer_steps": observer.training.num_steps,
        "optimizer_hook_registered": observer.training.reads_gradients and observer.training.num_steps > 0,
        "skipped_params": [skipped for root in roots for skipped in root.skipped_params],
    }


def recorded_fields(recorder: Recorder) -> dict[str, Any]:
    return {
        "records_written": recorder.records_written,
        "records_cut": recorder.records_cut,
        "first_bad": recorder.first_bad,
        "first_nonfinite": recorder.first_nonfinite,
        "first_oob": recorder.first_oob,
        "oob_records": recorder.oob_records,
        "peak_finite_max": recorder.peak_finite_max,
        "peak_finite_min": recorder.peak_finite_min,
        "pre_context_flushed": recorder.pre_context_flushed,
    }


def followed_fields(config: Config, following: Following) -> dict[str, Any]:
    """How tensors were followed. What really happened, not what was asked for, decides `follow_mode`."""
    installed = following.pipeline_installed
    if not config.follows:
        mode = "off"
    elif installed:
        mode = "stage_wrappers_side_read" if following.stage_reads_active else "stage_wrappers"
    else:
        mode = "forward_blocks"
    return {
        "follow_mode": mode,
        "follow_fwd": bool(config.follows),
        "pipeline": config.pipeline,
        "pipeline_installed": installed,
        "pipeline_mint_phase": following.mint_phase,
        "pipeline_checkpoints": following.pipeline_checkpoints,
        "forward_checkpoints": following.forward_checkpoints,
        "stage_reads": config.stage_reads,
        "stage_reads_active": following.stage_reads_active,
        "stage_read_count": following.stage_read_count,
        "track_attr": config.track_attr,
        "track_max": config.track_max,
        "track_every_layer": config.track_every_layer,
        "track_layer_stride": config.track_layer_stride,
        "batches_seen": following.batches_seen,
        "auto_discovered": following.auto_discovered,
        "unfound_tensors": following.unfound,
        "unmatched_follows": following.unmatched,
    }


def origin_fields(finder: OriginFinder | Glimpse | None, unscanned: list[str]) -> dict[str, Any]:
    return {
        "origin": finder.origin if finder is not None else None,
        "expected": list(finder.expected.values()) if finder is not None else [],
        "origin_unscanned": unscanned,
    }


def configured_fields(config: Config) -> dict[str, Any]:
    return {
        "spec_present": config.spec_source is not None,
        "spec_applied": config.spec_source is not None and config.spec_error is None,
        "spec_error": config.spec_error,
        "spec_source": config.spec_source,
        "huge_threshold": config.huge_threshold,
        "pre_context": config.pre_context,
        "max_param_numel": config.max_param_numel,
        "watch_types": config.types,
        "watch_names": config.names,
        "watch_stride": config.groups[0].stride if len(config.groups) == 1 else 1,
        "channels": config.channels,
        "capture_addr": "addr" in config.diagnostics,
        "locate": "locate" in config.diagnostics,
        "bad_values": "bad_values" in config.diagnostics,
        "dump_tensor": "dump_tensor" in config.diagnostics,
        "alloc_snapshot": "alloc_snapshot" in config.diagnostics,
        "sparse": config.sparse,
        "sparse_heavy": config.sparse_heavy,
        "bounds": [
            *(
                {"pattern": bound.pattern, "lo": _end(bound.low), "hi": _end(bound.high)}
                for bound in config.bounds
                if bound.pattern
            ),
            *(
                {"pattern": entry.tensor, "lo": _end(entry.bounds[0]), "hi": _end(entry.bounds[1])}
                for entry in config.follows
                if entry.bounds is not None
            ),
        ],
        "bound_global": [_end(end) for end in config.bound_all] if config.bound_all is not None else None,
        "tf32_allowed": tf32_allowed(),
        "config": config.describe(),
        "torch": torch.__version__,
        "notes": _NOTES,
    }


def _end(value: float) -> float | None:
    """JSON has no infinity: an open end is null."""
    return value if math.isfinite(value) else None
