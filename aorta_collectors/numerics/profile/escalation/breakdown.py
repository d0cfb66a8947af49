"""Where the process's time went over a look, as a line of escalations_<stem>.jsonl has it (`breakdown`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.numerics.profile.escalation.categories import CATEGORIES, COMPUTE
from aorta_collectors.numerics.profile.escalation.sources import Added
from aorta_collectors.numerics.profile.escalation.threads import Usage, computing_us


def breakdown(answer: Mapping[str, Any], wall_us: float, steps: int) -> dict[str, Any]:
    """The fields of `breakdown`.

    Args:
        answer: The helper's, at the end of a look.
        wall_us: Microseconds that were looked at.
        steps: Steps that they spanned.
    """
    used = Usage(*answer["step_usage"])
    calls = {category: float(answer["step_thread"].get(category, 0.0)) for category in CATEGORIES}
    in_calls_us = sum(calls.values())
    added = Added(*answer["added"])
    computing = computing_us(max(0.0, wall_us - added.wall_us), used, in_calls_us)
    own = {**calls, COMPUTE: min(computing, max(0.0, used.cpu_ns / 1e3 - added.cpu_us))}
    others: Mapping[str, float] = answer["others"]
    total = {category: own[category] + float(others.get(category, 0.0)) for category in own}
    return {
        "source": answer["source"],
        "wall_us": round(wall_us, 1),
        "steps": steps,
        "threads": answer["threads"],
        **{f"{category}_us": round(micros, 1) for category, micros in total.items()},
        "step_thread_us": {category: round(micros, 1) for category, micros in own.items()},
        "page_faults": used.faults,
        "overhead_percent": round(min(100.0, 100.0 * in_calls_us / wall_us), 2) if wall_us > 0 else 0.0,
        "dominant": max(own, key=lambda category: own[category]),
    }
