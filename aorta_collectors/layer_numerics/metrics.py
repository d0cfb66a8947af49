"""What of the evidence becomes metrics of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.api import Artifacts
from aorta_collectors.artifacts.summaries import summaries_of
from aorta_collectors.layer_numerics.order import Alignment, Position

# Summary field -> what of it becomes a metric; what is null becomes none.
_FINDINGS = {
    "first_bad": ("step", "layer", "direction", "kind"),
    "first_nonfinite": ("step", "layer", "kind"),
    "first_oob": ("step", "layer"),
}
_FOLLOWED = ("phase", "batch_id", "checkpoint")
# Where in a step each stage of an origin lies: the part, and the place among stages of one model.
_STAGES = {
    "parameter": ("param", 0),
    "data": ("fwd", 1),
    "forward": ("fwd", 2),
    "loss": ("fwd", 3),
    "backward": ("bwd", 4),
    "optimizer": ("grad", 5),
    "unknown": ("grad", 6),
}


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix: counts over all ranks, the earliest bad record of any of them, and the origin."""
    summaries = summaries_of(artifacts)
    metrics: dict[str, float | int | str] = {
        "layer_numerics_records": sum(summary["records_written"] for summary in summaries),
        "layer_numerics_modules": max(summary["watched_count"] for summary in summaries),
        "layer_numerics_steps": max(summary["steps_seen"] for summary in summaries),
        "layer_numerics_ranks": len({summary["rank"] for summary in summaries if summary["steps_seen"]}),
    }
    alignment = Alignment(summaries)
    for kind, fields in _FINDINGS.items():
        found = [summary for summary in summaries if summary.get(kind)]
        if not found:
            continue
        # Of the stock logger's, calls of layers stand for `seq`.
        summary = min(
            found,
            key=lambda summary: alignment.line(summary).position(
                summary[kind], summary[kind].get("matmul_calls_so_far", 0)
            ),
        )
        first = summary[kind]
        is_followed = kind == "first_oob" or first["direction"] == "pipeline"
        shown = {field: first.get(field) for field in (*fields, *(_FOLLOWED if is_followed else ()))}
        # Of the first attempt, nothing is said.
        metrics.update(_named(kind, {**shown, "rank": summary["rank"], "attempt": summary.get("restart") or None}))
    with_origin = [summary for summary in summaries if summary.get("origin")]
    if with_origin:
        # Where a rank cannot tell, since the value came from another one, that other one can.
        origin = min(with_origin, key=lambda summary: _origin_place(alignment, summary))["origin"]
        metrics.update(_named("origin", {field: origin[field] for field in ("stage", "module", "step", "rank")}))
    elif "layer_numerics_first_nonfinite_step" in metrics and all("origin" in summary for summary in summaries):
        metrics["layer_numerics_first_nonfinite_by_design"] = 1  # the stock logger knows of no origin
    return metrics


def _origin_place(alignment: Alignment, summary: Mapping[str, Any]) -> tuple[bool, Position]:
    origin = summary["origin"]
    direction, place = _STAGES[origin["stage"]]
    return origin["stage"] == "unknown", alignment.line(summary).position({**origin, "direction": direction}, place)


def _named(kind: str, fields: Mapping[str, Any]) -> dict[str, float | int | str]:
    return {f"layer_numerics_{kind}_{field}": value for field, value in fields.items() if value is not None}
