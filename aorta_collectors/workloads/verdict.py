"""How a script did: from how it ended, and from what collectors saw in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta.workloads import WorkloadResult

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.trial import Checked
from aorta_collectors.linux import signal_name
from aorta_collectors.workloads.config import ScriptConfig

_FIELDS = ("layer", "kind", "rank")


@dataclass(frozen=True)
class Ending:
    """How the command ended.

    Attributes:
        exit_code: -N for a signal N.
        timed_out: Whether it was ended for taking too long.
        elapsed_s: Seconds from its start to the end of its last process.
        stderr_tail: Its last lines on stderr.
        left_over: Processes that it had left behind, which were ended.
    """

    exit_code: int
    timed_out: bool
    elapsed_s: float
    stderr_tail: Sequence[str] = ()
    left_over: Sequence[str] = ()


def judge(config: ScriptConfig, ending: Ending, evidence: Sequence[Checked]) -> WorkloadResult:
    """Put both together. Whether the evidence suffices is not decided here: the host's side does."""
    metrics: dict[str, Any] = {}
    for checked in evidence:
        metrics.update(checked.metrics)
    details = [*_how_it_ended(config, ending), *_what_was_seen(config, metrics)]
    steps = _steps(evidence)
    times: Sequence[float] = max((checked.step_times_ms for checked in evidence), key=len, default=())
    metrics["script_exit_code"] = ending.exit_code
    if ending.left_over:
        metrics["script_left_over"] = len(ending.left_over)
    return WorkloadResult(
        passed=not details,
        failure_count=len(details),
        first_failure_iteration=min((entry["step"] for entry in details if "step" in entry), default=None),
        failure_details=details,
        total_iterations=steps or 0,
        step_times_ms=list(times),
        elapsed_sec=ending.elapsed_s,
        metrics=metrics,
        # A script that passes without a step being seen may have done its work all the same.
        main_work_started=True if steps else (False if steps == 0 and details else None),
        executed_iterations=steps,
        configured_iterations=config.steps,
    )


def _how_it_ended(config: ScriptConfig, ending: Ending) -> Iterator[dict[str, Any]]:
    tail = {"stderr_tail": list(ending.stderr_tail)}
    if ending.timed_out:
        message = f"the script was ended after timeout_s: {config.timeout_s:g} seconds"
        yield {"type": "ScriptTimeout", "error": message, "timeout_s": config.timeout_s, **tail}
    elif ending.exit_code < 0:
        name = signal_name(-ending.exit_code)
        yield {"type": "ScriptSignal", "error": f"the script was killed by {name}", "signal": name, **tail}
    elif ending.exit_code:
        message = f"the script exited with {ending.exit_code}"
        yield {"type": "ScriptExit", "error": message, "exit_code": ending.exit_code, **tail}


def _what_was_seen(config: ScriptConfig, metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What any collector says in metrics named <collector>_first_nonfinite_step and <collector>_first_bad_step."""
    for key, step in metrics.items():
        if key.endswith("_first_nonfinite_step") and "nonfinite" in config.fail_on:
            found = key.removesuffix("_step")
            if not metrics.get(f"{found}_by_design"):
                yield _seen("NonFinite", key.removesuffix("_first_nonfinite_step"), found, step, metrics)
        elif key.endswith("_first_bad_step") and "huge" in config.fail_on:
            found = key.removesuffix("_step")
            if metrics.get(f"{found}_kind") == "huge":
                yield _seen("Huge", key.removesuffix("_first_bad_step"), found, step, metrics)


def _seen(kind: str, collector: str, found: str, step: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: metrics[f"{found}_{name}"] for name in _FIELDS if f"{found}_{name}" in metrics}
    layer, rank = fields.get("layer", "?"), fields.get("rank", "?")
    message = f"{collector} saw {fields.get('kind', 'a bad value')} first in step {step}, layer {layer}, rank {rank}"
    return {"type": kind, "error": message, "collector": collector, "step": step, **fields}


def _steps(evidence: Sequence[Checked]) -> int | None:
    """Steps seen, by the collector that saw most; None where none could tell."""
    known: list[int] = []
    for checked in evidence:
        known += [int(value) for key, value in checked.metrics.items() if key.endswith("_steps")]
        if checked.verification.verdict in (Verdict.MISSING, Verdict.UNATTACHED):
            known.append(0)
    return max(known, default=None)
