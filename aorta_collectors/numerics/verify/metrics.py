"""What of the evidence becomes metrics of a trial, and how long its steps took.

Durations and rates are those of one process, the one that saw most steps, and of the lowest rank among equals: the
ranks of a job wait for one another, so that one of them tells of all. What that process does not know, such as the loss
that only the last stage of a pipeline has, the next one may. Counts are of all processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import Artifacts
from aorta_collectors.artifacts.summaries import stems_of
from aorta_collectors.errors import ArtifactError
from aorta_collectors.numerics.verify.reading import called, written

# More of them than anybody looks at are averaged pairwise, as layer_numerics does while it measures.
_MOST_TIMES = 1024
_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
_RATES = ("tokens_per_s", "samples_per_s", "mfu", "best_loss")

Metrics = dict[str, float | int | str]


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix, of artifacts that have been verified; what is not known is left out."""
    processes = sorted(stems_of(artifacts), key=lambda process: _by_steps(process[1]))
    summaries = [summary for _, summary in processes]
    metrics: Metrics = {
        "numerics_steps": summaries[0]["steps_seen"],
        "numerics_ranks": len({summary["rank"] for summary in summaries if summary["steps_seen"]}),
        "numerics_modules": max(map(called, summaries)),
        "numerics_tensors_read": sum(summary.get("tensors_read", 0) for summary in summaries),
        "numerics_spans": sum(written(summary, "spans") for summary in summaries),
        "numerics_escalations": sum(summary.get("escalations", {}).get("taken", 0) for summary in summaries),
    }
    exact = _exact(artifacts, *processes[0])
    for name, percent in _PERCENTILES.items():
        told = [summary.get("phases", {}).get("step", {}).get(f"{name}_ms") for summary in summaries]
        metrics.update(_first(f"numerics_step_ms_{name}", [_quantile(exact, percent / 100), *told]))
    for name in _RATES:
        values = (summary.get("step_metrics", {}).get(name) for summary in summaries)
        metrics.update(_first(f"numerics_{name}", values))
    shares = [summary.get("overhead", {}).get("share_of_step") for summary in summaries]
    metrics.update(_first("numerics_hook_share", [max(filter(_is_number, shares), default=None)]))
    metrics.update(_first_bad(summaries))
    return metrics


def step_times_ms(artifacts: Artifacts) -> Sequence[float]:
    """Step durations of one process, in their order, from its lines; at most 1,024 values, each a mean of equally many.

    Steps in which operations were counted took longer for it, and are left out.
    """
    processes = sorted(stems_of(artifacts), key=lambda process: _by_steps(process[1]))
    times = [float(line["step_ms"]) for line in _steps(artifacts, *processes[0])] if processes else []
    while len(times) > _MOST_TIMES:
        times = [(first + second) / 2 for first, second in zip(times[::2], times[1::2], strict=False)]
    return tuple(times)


def _exact(artifacts: Artifacts, stem: str, summary: Mapping[str, Any]) -> Sequence[float]:
    """The durations that the summary has percentiles of, by a histogram; none where lines of some are lacking."""
    times = [float(line["step_ms"]) for line in _steps(artifacts, stem, summary) if line.get("kind") != "evaluation"]
    return times if len(times) == summary.get("phases", {}).get("step", {}).get("count") else []


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Between two values interpolated linearly, as numpy.quantile does; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    rank = share * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (high - low) * (rank - math.floor(rank))


def _steps(artifacts: Artifacts, stem: str, summary: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Lines of steps with a duration, without those in which operations were counted, which took longer for it."""
    if "steps" not in summary["files"]:
        return ()
    try:
        lines = artifacts.lines(f"steps_{stem}.jsonl")
        found = [strict_json.loads(line) for line in lines if line.endswith(b"\n")]
        kept = [line for line in found if not line["is_counted"]]
        return kept if all(_is_number(line["step_ms"]) for line in kept) else ()
    except (ArtifactError, ValueError, KeyError, TypeError):
        return ()  # of evidence that is incomplete, nobody has looked at the lines


def _by_steps(summary: Mapping[str, Any]) -> tuple[int, int]:
    return -summary["steps_seen"], summary["rank"]


def _first(name: str, values: Iterable[Any]) -> Metrics:
    """The first of some values that is known, under a name."""
    known = next(filter(_is_number, values), None)
    return {} if known is None else {name: known}


def _first_bad(summaries: Sequence[Mapping[str, Any]]) -> Metrics:
    """The earliest tensor with a NaN or Inf on any rank; both are what a `script` workload calls non-finite."""
    found = [summary for summary in summaries if summary.get("first_bad")]
    if not found:
        return {}
    # Of one step, the forward comes before the backward, and `seq` is the same on ranks that run the same model.
    summary = min(
        found,
        key=lambda summary: (
            summary.get("restart", 0),
            summary["first_bad"]["step"] - summary.get("evaluation_steps", 0),
            summary["first_bad"]["direction"] != "forward",
            summary["first_bad"]["seq"],
            summary["rank"],
        ),
    )
    first = summary["first_bad"]
    kind = "nan" if first["nan_count"] else "inf"
    told: Metrics = {"step": first["step"], "layer": first["layer"], "direction": first["direction"], "kind": kind}
    told["rank"] = summary["rank"]
    if summary.get("restart"):
        told["attempt"] = summary["restart"]
    if came_to_nothing(summary, summaries):
        told["by_design"] = 1
    return {f"numerics_{name}_{key}": value for name in ("first_bad", "first_nonfinite") for key, value in told.items()}


def came_to_nothing(summary: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether training went on as if nothing had been, after the first bad value that a process saw.

    A mask's -Inf is like that, and the overflow of gradients in a step that a GradScaler skips.
    """
    trained = summary["steps_seen"] - summary.get("evaluation_steps", 0)
    losses = [found for each in summaries if (found := each.get("step_metrics", {}).get("last_loss")) is not None]
    return summary["first_bad"]["step"] < trained and bool(losses) and all(map(_is_number, losses))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
