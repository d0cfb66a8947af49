"""What of the evidence becomes metrics of a trial.

Numbers of bytes are those of one process, the one with the largest: memory of ranks is not added up, since each rank
has its own devices, and shares pages of the host with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aorta_collectors.api import Artifacts
from aorta_collectors.artifacts.summaries import summaries_of
from aorta_collectors.memory.names import POINTS
from aorta_collectors.memory.verify.reading import written

Metrics = dict[str, float | int | str]


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix, of artifacts that have been verified; what is not known is left out."""
    summaries = summaries_of(artifacts)
    metrics: Metrics = {
        "memory_steps": max(summary["steps_seen"] for summary in summaries),
        "memory_ranks": len({summary["rank"] for summary in summaries if summary["steps_seen"]}),
        "memory_points": sum(written(summary, "memory") for summary in summaries),
    }
    metrics |= _largest("peak_rss_bytes", (summary.get("peak_rss") for summary in summaries))
    metrics |= _largest("rss_growth_bytes", map(rss_growth, summaries))
    for name in ("peak_allocated", "peak_reserved"):
        metrics |= _largest(f"device_{name}_bytes", _of_devices(summaries, name))
    costs = (summary.get("overhead", {}) for summary in summaries)
    metrics |= _largest("look_us_p50", (cost.get("look_us_p50") for cost in costs))
    shares = (summary.get("overhead", {}).get("share_of_step") for summary in summaries)
    metrics |= _largest("hook_share", shares)
    return metrics


def rss_growth(summary: Mapping[str, Any]) -> int | None:
    """What the resident set has grown by over the steps after the first that was looked at, bytes; None for one step.

    The first step takes what stays: buffers of libraries, gradients, an optimizer's state. Its last point is compared
    with the same point of the last step.
    """
    for point in reversed(POINTS):
        counts = summary["points"].get(point)
        if counts is not None and counts["first"] is not None and counts["last"]["step"] > counts["first"]["step"]:
            return int(counts["last"]["rss"] - counts["first"]["rss"])
    return None


def _of_devices(summaries: Sequence[Mapping[str, Any]], name: str) -> Iterable[int]:
    return (device[name] for summary in summaries for device in summary["devices"].values())


def _largest(name: str, values: Iterable[float | None]) -> Metrics:
    """The largest of the values that are known, under a name."""
    known = [value for value in values if value is not None]
    return {f"memory_{name}": max(known)} if known else {}
