"""Attaching to the host: one table of patch points, each checked by name and signature before any is changed.

The host looks these functions up in their modules when it calls them, so replacing the module attribute is enough.
Each replacement calls through to the original; with no collector of ours requested it does nothing else. A host that
the table does not fit is refused with one error, since a plugin that half attaches is a silent pass again.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from aorta.registry import RegistryError

from aorta_collectors import __version__
from aorta_collectors.host import cells, dry_run, isolation, preflight, registry_spec, sweep, trials
from aorta_collectors.host.attachment import Attachment

TESTED_HOST = "0.3.0"
_MARK = "__aorta_collectors__"

Replacement = Callable[..., Any]


class HostMismatch(RegistryError):  # type: ignore[misc]
    """This host is not the one that the patch points were written for. The host's command line shows it as one line."""


@dataclass(frozen=True)
class PatchPoint:
    """A function of the host that is replaced.

    Attributes:
        parameters: Its parameter names, in order: what the replacement relies on.
        replace: replace(attachment, original, *args, **kwargs), called in the original's place.
    """

    module: str
    name: str
    parameters: tuple[str, ...]
    replace: Replacement


PATCH_POINTS = (
    PatchPoint("aorta.triage.runner", "_preflight_validate", ("recipe",), preflight.preflight_validate),
    PatchPoint("aorta.triage.runner", "_print_dry_run", ("recipe", "subprocess_argv"), dry_run.print_dry_run),
    PatchPoint(
        "aorta.triage.runner",
        "_run_one_cell",
        (
            "cell",
            "recipe",
            "run_dir",
            "sidecar_files",
            "layout",
            "resume_existing",
            "subprocess_argv",
            "env_probe",
        ),
        cells.run_one_cell,
    ),
    PatchPoint(
        "aorta.triage.runner",
        "_run_recipe_locked",
        (
            "recipe",
            "extra_sidecar_files",
            "ts",
            "run_dir",
            "layout",
            "resume_existing",
            "subprocess_argv",
            "strict",
            "should_write",
        ),
        sweep.run_recipe_locked,
    ),
    PatchPoint("aorta.run.collectors", "_registry", (), registry_spec.registry),
    PatchPoint(
        "aorta.run.dispatcher",
        "_run_single_trial",
        (
            "trial_idx",
            "workload_cls",
            "request",
            "env_descriptor",
            "mitigation_env",
            "results_dir",
            "should_write",
            "results_root",
            "persist_result",
            "result_transform",
            "skip_cleanup_on_error",
        ),
        trials.run_single_trial,
    ),
    PatchPoint(
        "aorta.run.dispatcher",
        "_run_single_trial_in_process_worker",
        (
            "trial_idx",
            "request",
            "env_descriptor",
            "mitigation_env",
            "effective_overlay",
            "startup_env",
            "isolation_generation",
            "results_dir",
            "results_root",
            "should_write",
        ),
        isolation.run_isolated_trial,
    ),
)


def attach() -> Attachment:
    """Attach to the host in this process; safe to call again.

    Raises:
        HostMismatch: A patch point is missing or looks different. Nothing has been changed then.
    """
    found = [(point, *_find(point)) for point in PATCH_POINTS]
    attached = [getattr(function, _MARK) for _, _, function in found if hasattr(function, _MARK)]
    attachment: Attachment = attached[0] if attached else Attachment()
    for point, module, function in found:
        if not hasattr(function, _MARK):
            setattr(module, point.name, _replacement(point, attachment, function))
    return attachment


def detach() -> None:
    """Put every original back, where nobody has wrapped our replacement since."""
    for point in PATCH_POINTS:
        module = importlib.import_module(point.module)
        function: Any = getattr(module, point.name, None)
        if hasattr(function, _MARK):
            setattr(module, point.name, function.__wrapped__)


def _replacement(point: PatchPoint, attachment: Attachment, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return point.replace(attachment, original, *args, **kwargs)

    setattr(replaced, _MARK, attachment)
    return replaced


def _find(point: PatchPoint) -> tuple[ModuleType, Callable[..., Any]]:
    try:
        module = importlib.import_module(point.module)
    except ImportError as error:
        raise _mismatch(f"{point.module} cannot be imported ({error})") from error
    function = getattr(module, point.name, None)
    if not callable(function):
        raise _mismatch(f"{point.module} has no function {point.name}")
    parameters = tuple(inspect.signature(function).parameters)
    if parameters != point.parameters:
        raise _mismatch(
            f"{point.module}.{point.name} takes ({', '.join(parameters)}), not ({', '.join(point.parameters)})"
        )
    return module, function


def _mismatch(what: str) -> HostMismatch:
    try:
        host = version("amd-aorta")
    except PackageNotFoundError:
        host = "unknown"
    return HostMismatch(
        f"aorta-collectors {__version__} does not fit amd-aorta {host}: {what}. It was written for amd-aorta "
        f"{TESTED_HOST}; install that version, or uninstall aorta-collectors to run this one without evidence"
    )
