"""What a trial without evidence becomes in the host's terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aorta_collectors.api import Verdict


def without_evidence(
    result: Any, exit_status: str, collector: str, verdict: Verdict, reason: str, *, is_command: bool
) -> tuple[Any, str]:
    """Turn a pass into an error; leave a failure what it is, since a reproduced bug stays reproduced.

    A workload's verdict follows from its exit status. A command's stands in metrics["verdict"], beside the detectors
    that led to it.
    """
    detail = {
        "type": "EvidenceMissing",
        "collector": collector,
        "verdict": verdict.value,
        "error": f"collect: {collector}: {verdict.value}: {reason}",
    }
    if not result.passed:
        # Seen beside the failure itself, without changing how many there were.
        return replace(result, failure_details=[*result.failure_details, detail]), exit_status
    metrics = dict(result.metrics)
    if is_command:
        metrics["verdict"] = "error"
        fired = [*metrics.get("error_detectors_fired", ()), f"collect:{collector}:{verdict.value}"]
        metrics["error_detectors_fired"] = fired
        exit_status = "workload_failed"
    else:
        exit_status = "infrastructure_failed"
    failed = replace(result, passed=False, failure_count=1, failure_details=[detail], metrics=metrics)
    return failed, exit_status
