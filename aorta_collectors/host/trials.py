"""Around each trial: arm before it, verify after it, and let no pass stand without evidence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.plain_run import note_trials, show_evidence
from aorta_collectors.host.trial import Trial
from aorta_collectors.host.workload import ArmedWorkload


def run_single_trial(attachment: Attachment, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The host's trial, with the requested collectors of ours around the workload.

    The workload class is replaced by a constructor of an armed workload, and the result passes through ours before
    the host records it: after run(), before cleanup() and before the environment is restored. It runs like this in
    the sweep's own process, and in the one that an isolated trial has for itself.
    """
    bound = inspect.signature(original).bind(*args, **kwargs)
    request = bound.arguments["request"]
    workload_cls = bound.arguments["workload_cls"]
    runs_command = getattr(workload_cls, "runs_command", False)
    names = attachment.ours(request.collect)
    # A command is also given the host's own collectors, and a place for its output, where none of ours is asked for.
    if not names and not runs_command:
        return original(*args, **kwargs)
    attachment.trials_begun += 1
    if bound.arguments["should_write"]:
        note_trials(request, names, bound.arguments["trial_idx"], bound.arguments["results_dir"])
    trial = Trial(
        attachment,
        names,
        request,
        bound.arguments["trial_idx"],
        bound.arguments["results_dir"],
        {**bound.arguments["env_descriptor"].env, **bound.arguments["mitigation_env"], **request.extra_env},
    )
    host_transform = bound.arguments.get("result_transform")

    def construct(config: dict[str, Any]) -> Any:
        trial.begin(config)
        if runs_command and "_aorta_results_root" in config:
            config.setdefault("_aorta_log_prefix", str(trial.place.stem))
        workload = workload_cls(config)
        if runs_command:
            workload.launch_through(trial.plan_command, lambda: [trial.verified(name) for name in trial.active])
        return workload if runs_command or trial.in_probe_flow else ArmedWorkload(workload, trial)

    def transform(result: Any, exit_status: str) -> tuple[Any, str]:
        if host_transform is not None:
            result, exit_status = host_transform(result, exit_status)
        return trial.judge(result, exit_status)

    bound.arguments["workload_cls"] = construct
    bound.arguments["result_transform"] = transform
    with attachment.running(trial):
        try:
            result = original(*bound.args, **bound.kwargs)
        finally:
            trial.disarm(None)
    attachment.trials_judged.append(trial.trial_id)
    if bound.arguments["should_write"]:
        show_evidence(request, names, bound.arguments["trial_idx"], bound.arguments["results_dir"])
    return result
