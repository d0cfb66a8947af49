"""How long the steps took, as the process that saw most of them has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aorta_collectors.api import Artifacts
from aorta_collectors.artifacts.summaries import summaries_of


def step_times_ms(artifacts: Artifacts) -> Sequence[float]:
    """Step durations of one process, in their order; the lowest rank where several saw equally many.

    The ranks of a job wait for one another, so that one of them tells of all.
    """
    summaries = summaries_of(artifacts)
    if not summaries:
        return ()
    most = max(summaries, key=lambda summary: (int(summary["steps_seen"]), -int(summary["rank"])))
    times = most.get("step_times_ms", [])  # the stock logger has none
    return tuple(times) if isinstance(times, list) and all(map(_is_duration, times)) else ()


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
