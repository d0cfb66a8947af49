"""A trial in a process of its own: the process verifies its evidence, and the one that started it sees that it did.

aorta runs the trial as `python -m aorta.run._trial_worker`, which looks for the workload among the entries of
aorta.workloads and so attaches the plugin. A result that comes back without a receipt of this very trial is from a
process without the plugin, and nobody has looked for evidence there.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from aorta.run._process import TrialWorkerError

from aorta_collectors.api import Expected, Verdict, Verification
from aorta_collectors.environment import TRIAL_VARIABLE, variables_set, whole_number
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.trial import Checked, check_artifacts
from aorta_collectors.host.asked import Asked, validated
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.plain_run import note_trials
from aorta_collectors.host.ranks import Lacking
from aorta_collectors.host.trial_place import TrialPlace
from aorta_collectors.host.verdicts import without_evidence

_NOT_ATTACHED = (
    "the trial's own process ran without aorta-collectors: its interpreter must have this version installed, with its "
    "entries of aorta.workloads (an editable install may have to be renewed)"
)


def run_isolated_trial(attachment: Attachment, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The host's isolated trial, and its receipts; a pass without them becomes an error.

    Raises:
        TrialWorkerError: The host's, with what the process left of its evidence.
    """
    bound = inspect.signature(original).bind(*args, **kwargs)
    arguments = bound.arguments
    request = arguments["request"]
    names = attachment.ours(request.collect)
    if not names:
        return original(*args, **kwargs)
    run_id = uuid.uuid4().hex
    requests = []
    for name in names:
        collector = attachment.load(name)
        requests.append(Asked(collector, validated(collector, request.collect_options), [run_id]))
    root = arguments["results_root"]
    anchor = Anchor(root.path, root.identity) if root is not None else Anchor(arguments["results_dir"].parent)
    place = TrialPlace.of(request, arguments["trial_idx"], arguments["results_dir"], anchor)
    if arguments["should_write"]:
        note_trials(request, names, arguments["trial_idx"], arguments["results_dir"])
    try:
        with variables_set({TRIAL_VARIABLE: run_id}):  # the host hands it to the process
            result = original(*args, **kwargs)
    except TrialWorkerError as error:
        if not arguments["should_write"]:
            raise
        raise TrialWorkerError(f"{error}; {_left_behind(place, requests, str(error))}") from error
    attachment.trials_judged.append(result.trial_id)
    if not arguments["should_write"]:
        return result
    return _confirmed(result, place, requests, arguments)


def _confirmed(result: Any, place: TrialPlace, requests: list[Asked], arguments: dict[str, Any]) -> Any:
    """The result, as an error where a request has no receipt of this trial that satisfies it."""
    from aorta.run import dispatcher
    from aorta.workloads import WorkloadResult

    faults = [_fault(place, asked, passed=bool(result.result["passed"])) for asked in requests]
    lacking = [fault for fault in faults if fault is not None]
    if not lacking:
        return result
    workload_result, exit_status = WorkloadResult(**result.result), result.exit_status
    for name, verdict, reason in lacking:
        workload_result, exit_status = without_evidence(
            workload_result, exit_status, name, Verdict(verdict), reason, is_command=False
        )
    result = replace(result, result=asdict(workload_result), exit_status=exit_status)
    dispatcher._write_trial_result(
        result=result,
        request=arguments["request"],
        trial_idx=arguments["trial_idx"],
        results_dir=arguments["results_dir"],
        results_root=arguments["results_root"],
    )
    return result


def _fault(place: TrialPlace, asked: Asked, *, passed: bool) -> Lacking | None:
    """What is wrong with the receipt of this trial; where there is none, one is written that says so."""
    name = asked.collector.name
    try:
        receipt = place.read(name)
        if receipt is not None and asked.run_id in receipt.run_ids:
            # A result that did not pass has in it what the process itself found lacking.
            if receipt.satisfied or not asked.required or not passed:
                return None
            return Lacking(name, receipt.verdict, receipt.reason)
        verification = Verification(Verdict.MISSING, _NOT_ATTACHED)
    except ArtifactError as error:
        verification = Verification(Verdict.INVALID, f"the receipt cannot be read: {error}")
    reason = _record(place, asked, Checked(verification), "unchanged")
    return Lacking(name, verification.verdict.value, reason) if asked.required else None


def _left_behind(place: TrialPlace, requests: list[Asked], why: str) -> str:
    """What there is of each kind of evidence after the process died; receipts keep it."""
    world_size = max(1, whole_number("WORLD_SIZE", 1))
    found = []
    for asked in requests:
        expected = Expected(asked.options, frozenset(asked.run_ids), "in-process", world_size)
        checked = check_artifacts(asked.collector, place.anchor, place.artifacts(asked), expected)
        if checked.verification.verdict is Verdict.MISSING and not checked.files:
            checked = Checked(Verification(Verdict.MISSING, "nothing had been written yet"))
        if checked.verification.verdict is Verdict.CAPTURED:
            # It may have died after the workload: whatever its evidence says, the trial has no result.
            verification = replace(checked.verification, verdict=Verdict.INCOMPLETE)
            checked = replace(checked, verification=verification)
        _record(place, asked, checked, "in-process", f" (the trial's own process died: {why})")
        found.append(f"{asked.collector.name}: {checked.verification.verdict.value}: {checked.verification.reason}")
    return "; ".join(found)


def _record(place: TrialPlace, asked: Asked, checked: Checked, route: str, more: str = "") -> str:
    """Write a receipt in the process's stead; returns the reason in it."""
    verification = checked.verification
    reason = verification.reason + more
    try:
        place.write(place.receipt(asked, checked, verification.verdict, reason, route=route))
    except ArtifactError as error:
        reason += f"; the receipt could not be written: {error}"
    return reason
