"""The fields of summary_rank<N>.json, in the stock logger's names and meanings; schemas/layer_numerics.summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.recorder import Recorder, tf32_allowed
from aorta_collectors.observe.observation import RootInfo
from aorta_collectors.observe.observer import Observer

# What the stock logger can do and this engine cannot yet. A reader of the artifacts sees that it was off.
_OFF: dict[str, Any] = {
    "capture_addr": False,
    "locate": False,
    "bad_values": False,
    "dump_tensor": False,
    "dump_tensor_dumped": False,
    "alloc_snapshot": False,
    "alloc_snapshot_dumped": False,
    "follow_mode": "off",
    "follow_fwd": False,
    "pipeline": False,
    "pipeline_installed": False,
    "pipeline_mint_phase": None,
    "pipeline_checkpoints": 0,
    "forward_checkpoints": 0,
    "stage_reads": False,
    "stage_reads_active": False,
    "stage_read_count": 0,
    "track_attr": [],
    "track_max": 0,
    "track_every_layer": False,
    "track_layer_stride": 1,
    "batches_seen": 0,
    "sparse": False,
    "sparse_heavy": False,
    "bounds": [],
    "bound_global": None,
    "first_oob": None,
    "oob_records": 0,
    "peak_finite_max": None,
    "peak_finite_min": None,
}
_NOTES = (
    "first_bad is the first NaN, Inf or huge value in order of step and observation, or null. matmul_calls_so_far "
    "counts watched activations and input gradients."
)


def observed_fields(observer: Observer, roots: Sequence[RootInfo], roots_cut: int) -> dict[str, Any]:
    names = [name for root in roots for name in root.watched_names]
    unobserved, opaque = observer.unobserved()
    unmatched = [index for index in range(observer.num_groups) if index not in observer.groups_matched]
    return {
        "steps_seen": observer.step,
        "matmul_calls_total": observer.calls,
        "tensors_observed": observer.tensors_observed,
        "tensors_unreadable": observer.tensors_unreadable,
        "hook_errors": observer.errors,
        "first_hook_error": observer.first_error,
        "roots": [root.label for root in roots],
        "roots_cut": roots_cut,
        "modules_built": observer.modules_built,
        "watched_count": len(names),
        "watched_names": names,
        "unobserved_names": unobserved,
        "opaque_names": opaque,
        "unmatched_groups": unmatched,
        "params_scanned": sum(root.params_scanned for root in roots),
        "grad_params_planned": sum(root.grad_params_planned for root in roots),
        "grad_records_stashed": observer.grads_observed,
        "optimizer_hook_registered": observer.optimizer_steps > 0,
        "skipped_params": [skipped for root in roots for skipped in root.skipped_params],
    }


def recorded_fields(recorder: Recorder) -> dict[str, Any]:
    return {
        "records_written": recorder.records_written,
        "records_cut": recorder.records_cut,
        "first_bad": recorder.first_bad,
        "first_nonfinite": recorder.first_nonfinite,
        "pre_context_flushed": recorder.pre_context_flushed,
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
        **_OFF,
        "tf32_allowed": tf32_allowed(),
        "config": config.describe(),
        "torch": torch.__version__,
        "notes": _NOTES,
    }
