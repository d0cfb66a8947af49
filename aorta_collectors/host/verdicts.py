"""What a trial without evidence becomes in the host's terms."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.linux import signal_name

log = logging.getLogger("aorta.collectors")


def killed_by(metrics: Mapping[str, Any]) -> str:
    """The signal that ended a trial's command, such as "SIGKILL"; empty where none did."""
    exit_code = metrics.get("exit_code", metrics.get("script_exit_code"))
    # The host writes -1 where its own patience was over, and no command dies of SIGHUP there.
    if not isinstance(exit_code, int) or exit_code >= -1:
        return ""
    return signal_name(-exit_code)


def saw_bad(collector: str, metrics: Mapping[str, Any]) -> bool:
    """Whether the evidence shows what the trial is about, whatever came after."""
    return f"{collector}_first_bad_step" in metrics or f"{collector}_first_nonfinite_step" in metrics


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


def correct_record(anchor: Anchor, result: Any, detector: str) -> None:
    """Have the command's own result.json say what the matrix says; the host wrote it before verification."""
    path = Path(str(result.metrics.get("result_json_path", "")))
    try:
        with anchor.open(path.parent) as directory:
            record = json.loads(directory.read(path.name))
            record["verdict"] = "error"
            record["error_detectors_fired"] = [*record.get("error_detectors_fired", ()), detector]
            directory.write(path.name, json.dumps(record, indent=2).encode())
    except (ArtifactError, ValueError) as error:
        log.warning("%s still says pass: %s", path, error)
