"""How much a trial gets done in a second, over all its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.numerics.phases import STEP


@dataclass(frozen=True)
class Throughput:
    """Medians over steps. What ranks get done is added up: each has a part of the data.

    Attributes:
        steps_per_s: By the median step of the slowest rank.
        mfu: Mean of the ranks.
        memory_peak_mb: Of the rank that used most, in units of 10^6 bytes.
        flops_per_step: Of one rank.
        last_loss: Of the first rank that has one.
    """

    steps_per_s: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    mfu: float | None
    memory_peak_mb: float | None
    flops_per_step: float | None
    last_loss: float | str | None
    best_loss: float | None
    best_loss_step: int | None


def throughput_of(summaries: Sequence[Mapping[str, Any]]) -> Throughput:
    found = [summary.get("step_metrics", {}) for summary in summaries]
    medians = [summary.get("phases", {}).get(STEP, {}).get("p50_ms") for summary in summaries]
    slowest = max((median for median in medians if median), default=None)
    utilizations = _known(found, "mfu")
    of_loss: Mapping[str, Any] = next((entry for entry in found if entry.get("last_loss") is not None), {})
    return Throughput(
        1000 / slowest if slowest else None,
        sum(_known(found, "tokens_per_s")) or None,
        sum(_known(found, "samples_per_s")) or None,
        sum(utilizations) / len(utilizations) if utilizations else None,
        max(_known(found, "memory_peak_mb"), default=None),
        max(_known(found, "flops_per_step"), default=None),
        of_loss.get("last_loss"),
        of_loss.get("best_loss"),
        of_loss.get("best_loss_step"),
    )


def _known(found: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [entry[key] for entry in found if entry.get(key) is not None]
