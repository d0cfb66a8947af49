"""Captures made up value by value, in the files of numerics: for what no real program does on demand.

The model is a small transformer that trains: LAYERS has its modules. A step takes STEP_US microseconds, of which the
phases of PHASES_MS are parts, and each step is like the others as long as nothing else is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.spans.span import TRAINING_STEPS

Line = dict[str, Any]

RUN_ID = "trial-1"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
START_NS = 1_700_000_000_000_000_000
STEP_US = 10_000.0
PHASES_MS = {"data": 0.5, "forward": 3.0, "loss": 0.5, "backward": 5.0, "opt": 1.0}
#: Path, class, named step, microseconds of its forward pass with all parts, and without them.
LAYERS = (
    ("wte", "Embedding", "EMBED", 100.0, 100.0),
    ("h.0", "Block", "TRANSFORMER_BLOCK", 1200.0, 50.0),
    ("h.0.attn", "Attention", "", 700.0, 700.0),
    ("h.0.mlp", "MLP", "", 450.0, 450.0),
    ("h.1", "Block", "TRANSFORMER_BLOCK", 1200.0, 50.0),
    ("h.1.attn", "Attention", "", 700.0, 700.0),
    ("h.1.mlp", "MLP", "", 450.0, 450.0),
    ("ln_f", "LayerNorm", "NORM", 40.0, 40.0),
    ("lm_head", "Linear", "LM_HEAD", 300.0, 300.0),
)
ROOFLINE = {
    "device": "a CPU",
    "flops_per_s": {"float32": 1e11, "bfloat16": 2e11},
    "bytes_per_s": 2e10,
    "launch_us": 2.0,
    "threads": 1,
    "measured_at": "2026-01-01T00:00:00+00:00",
    "cached": False,
}


def write(
    directory: Path,
    *,
    ranks: int = 1,
    steps: int = 4,
    config: Mapping[str, Any] | None = None,
    bricks: Sequence[Line] | None = None,
    spans: Sequence[Line] | None = None,
    stats: Sequence[Line] | None = None,
    step_lines: Sequence[Line] | None = None,
    escalations: Sequence[Line] = (),
    summary: Mapping[str, Any] | None = None,
    by_rank: Mapping[int, Mapping[str, Any]] | None = None,
) -> Path:
    """Write what ranks would, into a directory as NUMERICS_DIR names one. Returns the directory.

    Args:
        steps: How many were begun.
        config: Options, decoded, such as {"trace": "layer"}; the others are as by default.
        bricks: The summary's, of `brick`; of each layer and direction, where there is no list and the options ask.
        spans, stats, step_lines, escalations: Lines of each rank, without what names the process; those that the
            options ask for, where there is no list.
        summary: Further fields of every summary. One of `...` is left out.
        by_rank: The same of one rank's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    options = Config.of(config or {})
    lines: dict[str, Sequence[Line]] = {}
    if options.traces:
        lines["spans"] = default_spans(steps) if spans is None else spans
    if options.reads_layers:
        lines["stats"] = default_stats(steps) if stats is None else stats
    if options.measures_steps:
        lines["steps"] = [step_line(step) for step in range(1, steps + 1)] if step_lines is None else step_lines
    if options.escalates:
        lines["escalations"] = escalations
    if options.profiles and bricks is None:
        bricks = default_bricks(steps)
    for rank in range(ranks):
        content = _summary(rank, ranks, steps, options, lines, bricks or ())
        content |= {**(summary or {}), **(by_rank or {}).get(rank, {})}
        content = {key: value for key, value in content.items() if value is not ...}
        stem = f"rank{rank}"
        (directory / f"summary_{stem}.json").write_text(json.dumps(content, indent=1))
        if options.keeps_payload:
            for step in range(1, steps + 1):
                (directory / f"payload_{stem}_step{step}.safetensors").write_bytes(_tensors())
        for kind, of_kind in lines.items():
            text = "".join(json.dumps(_of_rank(line, kind, rank)) + "\n" for line in of_kind)
            (directory / f"{kind}_{stem}.jsonl").write_text(text)
    return directory


def span(
    name: str,
    kind: str,
    number: int,
    *,
    parent: int | None = None,
    step: int = 0,
    start_us: float = 0.0,
    duration_us: float = 0.0,
    layer: str = "",
    direction: str = "",
    **more: Any,
) -> Line:
    """A line of spans_rank<N>.jsonl.

    Args:
        number: Of the span, above 0; unique on a rank.
        parent: The enclosing span's number.
        start_us: After START_NS.
    """
    return {
        "span_id": f"{number:016x}",
        "parent_span_id": None if parent is None else f"{parent:016x}",
        "name": name,
        "kind": kind,
        "layer": layer,
        "direction": direction,
        "step": step,
        "start_ns": START_NS + round(start_us * 1000),
        "duration_ns": round(duration_us * 1000),
        "overhead_ns": 0,
        "lamport": number,
        "thread": 1,
        "attributes": {},
        **more,
    }


def stat(step: int, layer: str, seq: int = 0, **more: Any) -> Line:
    """A line of stats_rank<N>.jsonl: of 8 elements from -1 to 1."""
    kinds = {path: (module_type, step_name) for path, module_type, step_name, *_ in LAYERS}
    module_type, step_name = kinds.get(layer, ("Linear", ""))
    line = {"step": step, "seq": seq, "layer": layer, "module_type": module_type, "step_name": step_name}
    line |= {"direction": "forward", "tensor_path": "", "dtype": "float32", "shape": [2, 4], "numel": 8}
    line |= {"min": -1.0, "max": 1.0, "mean": 0.0, "std": 0.5, "nan_count": 0, "inf_count": 0}
    return {**line, "zero_fraction": 0.0, "saturated_fraction": 0.0, **more}


def step_line(step: int, **more: Any) -> Line:
    """A line of steps_rank<N>.jsonl: 4 samples of 16 tokens, and a loss that halves."""
    step_ms = STEP_US / 1000
    line: Line = {"step": step, "kind": "training", "start_ns": START_NS + round((step - 1) * STEP_US * 1000)}
    line |= {"step_ms": step_ms, "phases_ms": dict(PHASES_MS), "loss": 4.0 * 0.5**step, "samples": 4, "tokens": 64}
    line |= {"samples_per_s": 4000 / step_ms, "tokens_per_s": 64_000 / step_ms, "flops": 2e8, "mfu": 0.2}
    line |= {"grad_norm": 1.0, "memory_used_mb": 200.0, "memory_total_mb": 1000.0, "eta_s": None}
    return {**line, "is_counted": False, **more}


def brick(layer: str, *, direction: str = "forward", **more: Any) -> Line:
    """An entry of the summary's bricks: one of LAYERS, or one with other numbers given."""
    known = {path: rest for path, *rest in LAYERS}
    module_type, step_name, total_us, self_us = known.get(layer, ("Linear", "", 100.0, 100.0))
    found: Line = {"layer": layer, "module_type": module_type, "step_name": step_name, "direction": direction}
    found |= {"calls": 4, "total_us": 4 * total_us, "self_us": 4 * self_us, "mean_us": total_us, "p50_us": total_us}
    found |= {"p95_us": total_us * 1.1, "p99_us": total_us * 1.2, "cv": 0.05}
    found |= {"flops": self_us * 5e4, "bytes": self_us * 1e3, "dtype": "float32", "efficiency": 0.5}
    found |= {"bound": "compute", "operations": 6, "units": None, "dead_units": None, "saturated_units": None}
    return {**found, "escalations": 0, **more}


def escalation(layer: str, step: int = 3, **more: Any) -> Line:
    """A line of escalations_rank<N>.jsonl: a brick whose time varies, since it waits for a lock."""
    line: Line = {"step": step, "layer": layer, "direction": "forward", "reason": "unstable", "value": 0.4}
    line |= {"threshold": 0.15, "brick_us": 700.0, "efficiency": 0.5, "over_budget": False}
    line["kernels"] = [{"name": "aten::mm", "calls": 2, "self_us": 300.0, "device_us": None}]
    times = {"mmap_us": 10.0, "futex_us": 6000.0, "ioctl_us": 0.0, "read_us": 5.0, "write_us": 1.0, "other_us": 2.0}
    line["breakdown"] = {
        "source": "strace",
        "wall_us": STEP_US,
        "steps": 1,
        "threads": 2,
        **times,
        "compute_us": 3000.0,
    }
    of_step = {key.removesuffix("_us"): value for key, value in times.items()}
    line["breakdown"] |= {"step_thread_us": {**of_step, "compute": 3000.0}, "page_faults": 0}
    line["breakdown"] |= {"overhead_percent": 60.2, "dominant": "futex"}
    return {**line, "unavailable": [], "span_id": None, **more}


def default_spans(steps: int) -> list[Line]:
    """The process, and in each step its phases, and its named steps inside of FORWARD."""
    found = [span("python", "process", 1, duration_us=steps * STEP_US)]
    for step in range(1, steps + 1):
        at = (step - 1) * STEP_US
        own = len(found) + 1
        found.append(span("STEP", "step", own, parent=1, step=step, start_us=at, duration_us=STEP_US))
        for name, milliseconds in zip((*TRAINING_STEPS[:1], *TRAINING_STEPS[2:]), PHASES_MS.values(), strict=True):
            number, lasts = len(found) + 1, milliseconds * 1000
            found.append(span(name, "phase", number, parent=own, step=step, start_us=at, duration_us=lasts))
            if name == "FORWARD":
                found += _layer_spans(number, step, at)
            at += lasts
    return found


def default_stats(steps: int) -> list[Line]:
    """The output of each layer and its gradient, in each step."""
    both = [(path, "forward") for path, *_ in LAYERS] + [(path, "backward") for path, *_ in reversed(LAYERS)]
    return [
        stat(step, layer, seq, direction=direction)
        for step in range(1, steps + 1)
        for seq, (layer, direction) in enumerate(both)
    ]


def default_bricks(steps: int) -> list[Line]:
    """Each layer forward; backward takes twice as long."""
    found = []
    for path, _, _, total_us, self_us in LAYERS:
        found.append(brick(path, calls=steps, total_us=steps * total_us, self_us=steps * self_us))
        doubled = {key: 2 * value for key, value in found[-1].items() if key.endswith("_us") or key == "flops"}
        found.append(brick(path, direction="backward", **{**doubled, "calls": steps}))
    return found


def _layer_spans(parent: int, step: int, start_us: float) -> list[Line]:
    found = []
    for path, _, step_name, total_us, _ in LAYERS:
        if step_name in ("EMBED", "TRANSFORMER_BLOCK", "LM_HEAD"):
            place = {"parent": parent, "step": step, "start_us": start_us, "duration_us": total_us}
            number = parent + len(found) + 1
            found.append(span(step_name, "layer", number, **place, layer=path, direction="forward"))
            start_us += total_us
    return found


def _of_rank(line: Line, kind: str, rank: int) -> Line:
    found = {"rank": rank, "pid": 1000 + rank, **line}
    if kind == "spans":
        ids = {key: found[key] and f"{rank + 1:08x}{found[key][8:]}" for key in ("span_id", "parent_span_id")}
        found = {"trace_id": TRACE_ID, **found, **ids}
    return found


def _summary(
    rank: int, ranks: int, steps: int, options: Config, lines: Mapping[str, Sequence[Line]], bricks: Sequence[Line]
) -> Line:
    named = {name: [path for path, _, step_name, *_ in LAYERS if step_name == name] for name in _ANATOMY}
    of_steps = lines.get("steps", ())
    losses = {line["step"]: line["loss"] for line in of_steps if isinstance(line["loss"], float)}
    best = min(losses, key=losses.__getitem__, default=None)
    stats = lines.get("stats", ())
    bad = next((line for line in stats if line["nan_count"] or line["inf_count"]), None)
    times = [line["step_ms"] for line in of_steps]
    phases = {"step": sum(times) / len(times), **PHASES_MS} if times else {}
    content: Line = {"schema_version": 1, "engine": "aorta-collectors 1.0", "run_id": RUN_ID, "status": "complete"}
    content |= {"ended_by": "exit", "started_at": "2026-01-01T00:00:00+00:00", "rank": rank, "world_size": ranks}
    content |= {"restart": 0, "launcher": None, "host": "here", "pid": 1000 + rank, "device": "cpu", "torch": "2.13.0"}
    content |= {"warnings": [], "write_error": None, "trace_id": TRACE_ID, "parent_span_id": None}
    content |= {"config": options.describe(), "steps_seen": steps, "evaluation_steps": 0, "optimizer_steps": steps}
    content["files"] = {kind: {"written": len(of_kind), "dropped": 0} for kind, of_kind in lines.items()}
    content |= {"modules_built": 12, "roots": ["GPT"], "watched_count": len(LAYERS), "called_count": len(LAYERS)}
    content |= {"unmatched_steps": [], "opaque_names": [], "graph_breaks": {}, "hook_errors": 0}
    content |= {"first_hook_error": None, "overhead": {}, "anatomy": {_ANATOMY[name]: named[name] for name in named}}
    content["trace_steps"] = [
        {"name": name, "direction": "forward", "count": steps, "total_us": steps * mean_us, **_four(mean_us, "us")}
        for name, mean_us in (("EMBED", 100.0), ("TRANSFORMER_BLOCK", 1200.0), ("LM_HEAD", 300.0))
    ]
    content["phases"] = {
        name: {"count": len(times), "total_ms": len(times) * mean_ms, **_three(mean_ms, "ms")}
        for name, mean_ms in phases.items()
    }
    content |= {"intervals": [], "collectives": [], "profile_excluded": None, "otlp": None}
    kept = {"files": steps, "tensors": steps, "bytes": 32 * steps, "tensors_dropped": 0, "bytes_dropped": 0}
    content["payload"] = kept if options.keeps_payload else None
    content["step_metrics"] = {"last_loss": losses.get(max(losses, default=0)), "best_loss": losses.get(best or 0)}
    content["step_metrics"] |= {"best_loss_step": best, "tokens_per_s": 6400.0, "samples_per_s": 400.0, "mfu": 0.2}
    content["step_metrics"] |= {"memory_peak_mb": 210.0, "flops_per_step": 2e8}
    content |= {"bricks": list(bricks), "roofline": dict(ROOFLINE) if options.profiles else None}
    content["energy"] = {"joules": None, "source": None, "unavailable": ["rapl: no such file"]}
    content["escalations"] = {"taken": len(lines.get("escalations", ())), "suppressed": 0, "unavailable": []}
    content |= {"tensors_read": len(stats), "tensors_skipped": {}, "stopped": None}
    return {**content, "first_bad": None if bad is None else _of_rank(bad, "stats", rank)}


def _tensors() -> bytes:
    """A file of safetensors with eight zeros."""
    header = json.dumps({"wte": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(32)


_ANATOMY = {"EMBED": "embeddings", "TRANSFORMER_BLOCK": "blocks", "NORM": "norms", "LM_HEAD": "heads"}


def _three(value: float, unit: str) -> dict[str, float]:
    return {f"p50_{unit}": value, f"p95_{unit}": value * 1.1, f"p99_{unit}": value * 1.2}


def _four(value: float, unit: str) -> dict[str, float]:
    return {f"mean_{unit}": value, **_three(value, unit)}
