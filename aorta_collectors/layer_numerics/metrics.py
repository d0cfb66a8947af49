"""What of the evidence becomes metrics of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from aorta_collectors.api import Artifacts
from aorta_collectors.layer_numerics.reading import SUMMARY

# Summary field -> what of it becomes a metric; what is null becomes none.
_FINDINGS = {
    "first_bad": ("step", "layer", "direction", "kind"),
    "first_nonfinite": ("step", "layer", "kind"),
    "first_oob": ("step", "layer"),
}
_FOLLOWED = ("phase", "batch_id", "checkpoint")


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix: counts over all ranks, the earliest bad record of any of them, and the origin."""
    summaries = [orjson.loads(artifacts.read(name)) for name in artifacts.sizes() if SUMMARY.match(name)]
    metrics: dict[str, float | int | str] = {
        "layer_numerics_records": sum(summary["records_written"] for summary in summaries),
        "layer_numerics_modules": max(summary["watched_count"] for summary in summaries),
        "layer_numerics_steps": max(summary["steps_seen"] for summary in summaries),
        "layer_numerics_ranks": len({summary["rank"] for summary in summaries if summary["steps_seen"]}),
    }
    for kind, fields in _FINDINGS.items():
        found = [(summary[kind], summary["rank"]) for summary in summaries if summary.get(kind)]
        if not found:
            continue
        first, rank = min(found, key=lambda entry: (entry[0]["step"], entry[0].get("matmul_calls_so_far", 0), entry[1]))
        is_followed = kind == "first_oob" or first["direction"] == "pipeline"
        shown = {field: first.get(field) for field in (*fields, *(_FOLLOWED if is_followed else ()))}
        metrics.update(_named(kind, {**shown, "rank": rank}))
    origins = [summary["origin"] for summary in summaries if summary.get("origin")]
    if origins:
        # Where a rank cannot tell, since the value came from another one, that other one can.
        origin = min(origins, key=lambda entry: (entry["stage"] == "unknown", entry["step"], entry["rank"]))
        metrics.update(_named("origin", {field: origin[field] for field in ("stage", "module", "step", "rank")}))
    return metrics


def _named(kind: str, fields: Mapping[str, Any]) -> dict[str, float | int | str]:
    return {f"layer_numerics_{kind}_{field}": value for field, value in fields.items() if value is not None}
