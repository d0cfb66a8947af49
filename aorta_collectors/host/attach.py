"""Attaching to the host: one table of patch points, each checked by name and shape before any is changed.

The host looks these up in their modules when it needs them, so replacing the module attribute is enough. The
replacement of a function calls through to the original; with no collector of ours requested it does nothing else. A
host that the table does not fit is refused with one error, since a plugin that half attaches is a silent pass again.

The names that a recipe may ask for are among them. A stock `aorta sweep run` reads the recipe of a workload before it
loads a plugin, and knows the host's own alone then; `aorta-collectors sweep run` attaches first.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from aorta.registry import RegistryError

from aorta_collectors import __version__
from aorta_collectors.errors import CollectorsError
from aorta_collectors.host import cells, dry_run, isolation, preflight, registry_spec, sweep, trials
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.points import Function, Names, PatchPoint, attached_by

TESTED_HOST = "0.3.0"

#: The names of collectors that the host knows by itself.
HOST_NAMES = frozenset({"rocprof", "proton", "numerics", "layer_numerics", "amd_log"})


class HostMismatch(RegistryError):  # type: ignore[misc]
    """This host is not the one that the patch points were written for. The host's command line shows it as one line."""


PATCH_POINTS: tuple[PatchPoint, ...] = (
    Function("aorta.triage.runner", "_preflight_validate", ("recipe",), preflight.preflight_validate),
    Function("aorta.triage.runner", "_print_dry_run", ("recipe", "subprocess_argv"), dry_run.print_dry_run),
    Function(
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
    Function(
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
    Names("aorta.run.collectors", "KNOWN_RECIPES", HOST_NAMES),
    Names("aorta.run.dispatcher", "KNOWN_RECIPES", HOST_NAMES),
    Function("aorta.run.collectors", "_registry", (), registry_spec.registry),
    Function(
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
    Function(
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
    attached = [attachment for _, _, original in found if (attachment := attached_by(original)) is not None]
    attachment = attached[0] if attached else Attachment()
    for point, module, original in found:
        if attached_by(original) is None:
            setattr(module, point.name, point.replacement(attachment, original))
    return attachment


def require_attached() -> Attachment:
    """Attach for a command of ours.

    Raises:
        CollectorsError: HostMismatch, which is the host's own command line to show.
    """
    try:
        return attach()
    except HostMismatch as error:
        raise CollectorsError(str(error)) from None


def detach() -> None:
    """Put every original back, where nobody has wrapped our replacement since."""
    for point in PATCH_POINTS:
        module = importlib.import_module(point.module)
        found: Any = getattr(module, point.name, None)
        if attached_by(found) is not None:
            setattr(module, point.name, found.__wrapped__)


def _find(point: PatchPoint) -> tuple[ModuleType, Any]:
    try:
        module = importlib.import_module(point.module)
    except ImportError as error:
        raise _mismatch(f"{point.module} cannot be imported ({error})") from error
    found = getattr(module, point.name, None)
    if what := point.mismatch(found):
        raise _mismatch(what)
    return module, found


def _mismatch(what: str) -> HostMismatch:
    try:
        host = version("amd-aorta")
    except PackageNotFoundError:
        host = "unknown"
    return HostMismatch(
        f"aorta-collectors {__version__} does not fit amd-aorta {host}: {what}. It was written for amd-aorta "
        f"{TESTED_HOST}; install that version, or uninstall aorta-collectors to run this one without evidence"
    )
