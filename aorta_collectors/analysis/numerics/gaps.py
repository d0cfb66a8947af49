"""What a profile does not show, and why: what was left out, dropped, not seen or not taken as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.analysis.numerics.processes import Processes

_NAMES = 5


def gaps_of(processes: Processes) -> tuple[str, ...]:
    """A sentence each, the ones that put numbers in doubt first. What several ranks say is said once."""
    found: dict[str, list[str]] = {}
    for label, summary in zip(processes.labels, processes.summaries, strict=True):
        for sentence in _of_summary(summary):
            found.setdefault(sentence, []).append(label)
    several = len(processes.counted) > 1
    told = [f"{sentence}{_where(labels, processes) if several else ''}" for sentence, labels in found.items()]
    if processes.attempts_before:
        told.append(f"{processes.attempts_before} process(es) of attempts before the last are left out")
    if processes.idle:
        told.append(f"{processes.idle} process(es) ran no step and are left out")
    return tuple(told)


def _where(labels: list[str], processes: Processes) -> str:
    if len(labels) == len(processes.counted):
        return " (all ranks)"
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f" ({', '.join(labels[:3])}{more})"


def _of_summary(summary: Mapping[str, Any]) -> list[str]:
    told: list[str] = []
    if summary.get("stopped"):
        stopped = summary["stopped"]
        told.append(f"stopped the line in step {stopped.get('step')} at {stopped.get('layer')}: {stopped.get('kind')}")
    elif summary.get("first_bad"):
        bad = summary["first_bad"]
        what = "NaN" if bad.get("nan_count") else "Inf"
        told.append(f"{what} first in step {bad.get('step')}: {bad.get('direction')} {bad.get('layer')}")
    if summary.get("profile_excluded"):
        told.append(f"bricks were not timed, or no longer: {summary['profile_excluded']}")
    if summary["hook_errors"]:
        told.append(f"{summary['hook_errors']} error(s) in hooks, the first: {summary.get('first_hook_error')}")
    if summary["write_error"]:
        told.append(f"not everything could be written: {summary['write_error']}")
    if summary["status"] == "running":
        told.append("had not ended when its summary was last written")
    told += [f"{entry['dropped']} lines of {kind} dropped: the file was full" for kind, entry in _dropped(summary)]
    opaque = summary.get("opaque_names") or []
    if opaque:
        more = f" and {len(opaque) - _NAMES} more" if len(opaque) > _NAMES else ""
        told.append(f"not seen, since torch.compile or TorchScript runs them: {', '.join(opaque[:_NAMES])}{more}")
    if summary.get("unmatched_steps"):
        told.append(f"`steps` names what did not run: {', '.join(summary['unmatched_steps'])}")
    looks = summary.get("escalations") or {}
    if looks.get("suppressed"):
        told.append(f"{looks['suppressed']} closer looks suppressed by rate_limit")
    sent = summary.get("otlp") or {}
    if sent.get("dropped"):
        told.append(f"{sent['dropped']} spans not taken by {sent.get('endpoint')}: {sent.get('error')}")
    return [*told, *summary["warnings"]]


def _dropped(summary: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(kind, entry) for kind, entry in summary["files"].items() if entry["dropped"]]
