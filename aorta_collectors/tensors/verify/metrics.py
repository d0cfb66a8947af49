"""What of the evidence becomes metrics of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aorta_collectors.api import Artifacts
from aorta_collectors.artifacts.summaries import summaries_of

Metrics = dict[str, float | int | str]


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix, of artifacts that have been verified; what is not known is left out."""
    summaries = summaries_of(artifacts)
    observing = [summary for summary in summaries if summary["tensors_observed"]]
    return {
        "tensors_steps": max(summary["steps_seen"] for summary in summaries),
        "tensors_ranks": len({summary["rank"] for summary in observing}),
        "tensors_observed": sum(summary["tensors_observed"] for summary in summaries),
        "tensors_nonfinite": sum(summary["tensors_nonfinite"] for summary in summaries),
        "tensors_stored_bytes": sum(summary["values"]["bytes"] for summary in summaries),
        "tensors_left_out": sum(summary["tensors_left_out"] for summary in summaries),
        **_first_nonfinite(observing),
    }


def _first_nonfinite(summaries: Sequence[Mapping[str, Any]]) -> Metrics:
    """The earliest on any rank."""
    found = [summary for summary in summaries if summary["first_nonfinite"]]
    if not found:
        return {}
    # The order is the same on ranks that run the same model; evaluations may differ.
    summary = min(
        found,
        key=lambda summary: (
            summary.get("restart", 0),
            summary["first_nonfinite"]["step"] - summary.get("evaluation_steps", 0),
            summary["first_nonfinite"]["order"],
            summary["rank"],
        ),
    )
    first = summary["first_nonfinite"]
    told: Metrics = {
        "step": first["step"],
        "layer": first["layer"],
        "name": first["name"],
        "kind": "nan" if first["nan_count"] else "inf",
        "rank": summary["rank"],
    }
    if summary.get("restart"):
        told["attempt"] = summary["restart"]
    if came_to_nothing(summaries):
        told["by_design"] = 1
    return {f"tensors_first_nonfinite_{key}": value for key, value in told.items()}


def came_to_nothing(summaries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all that was observed last, on every rank, was finite again, and each of them says so.

    The overflow of gradients in a step that a GradScaler skips is like that.
    """
    return all(_ends_finite(summary) for summary in summaries)


def _ends_finite(summary: Mapping[str, Any]) -> bool:
    bad, last = summary.get("last_nonfinite_step"), summary.get("last_observed_step")
    if bad is None or last is None:
        return summary["first_nonfinite"] is None
    return bool(bad < last)
