"""Around each trial: arm before it, verify after it, and let no pass stand without evidence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.preflight import NOT_ISOLATED
from aorta_collectors.host.trial import Trial
from aorta_collectors.host.workload import ArmedWorkload


def run_single_trial(attachment: Attachment, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The host's trial, with the requested collectors of ours around the workload.

    The workload class is replaced by a constructor of an armed workload, and the result passes through ours before
    the host records it: after run(), before cleanup() and before the environment is restored.
    """
    bound = inspect.signature(original).bind(*args, **kwargs)
    request = bound.arguments["request"]
    names = attachment.ours(request.collect)
    if not names:
        return original(*args, **kwargs)
    attachment.trials_begun += 1
    trial = Trial(
        attachment,
        names,
        request,
        bound.arguments["trial_idx"],
        bound.arguments["results_dir"],
        {**bound.arguments["env_descriptor"].env, **bound.arguments["mitigation_env"], **request.extra_env},
    )
    workload_cls = bound.arguments["workload_cls"]
    host_transform = bound.arguments.get("result_transform")

    def construct(config: dict[str, Any]) -> Any:
        trial.begin(config)
        workload = workload_cls(config)
        return workload if trial.is_command else ArmedWorkload(workload, trial)

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
    return result


def run_isolated_trial(attachment: Attachment, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A trial in a process of its own: not armed yet, and so refused rather than run without evidence."""
    request = inspect.signature(original).bind(*args, **kwargs).arguments["request"]
    names = attachment.ours(request.collect)
    if names:
        raise RuntimeError(f"collect: {', '.join(names)} {NOT_ISOLATED}")
    return original(*args, **kwargs)
