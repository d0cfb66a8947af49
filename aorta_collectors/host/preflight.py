"""Before anything runs: what a recipe asks of collectors is validated, each for itself and all of a cell together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aorta.instrumentation.proton import PROTON_MODULE
from aorta.triage.recipe import RecipeSchemaError

from aorta_collectors.api import Capture
from aorta_collectors.environment import variables_set
from aorta_collectors.errors import CollectorsError, LaunchError, OptionsError
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.workload import command_workload
from aorta_collectors.host.wrapping import takes_the_script
from aorta_collectors.launch.value import Launch

_UNDER_PROTON = ("python", "-m", PROTON_MODULE, "script.py")


def preflight_validate(attachment: Attachment, original: Callable[..., None], recipe: Any) -> None:
    """Validate every collect: block of ours, at recipe and cell scope. Runs in a dry run too, and stays pure.

    A workload that runs a command has its workload_config validated as well.
    """
    original(recipe)
    command = command_workload(recipe.workload) if recipe.probe_extras is None else None
    if command is not None:
        _validate_commands(command, recipe)
    blocks = [("recipe.collect", recipe.collect, recipe.collect_options)]
    for cell in recipe.cells:
        if cell.collect is not None:
            blocks.append((f"recipe.cells[{cell.name}].collect", cell.collect, cell.collect_options or {}))
    if not any(attachment.ours(names) for _, names, _ in blocks):
        return
    is_command = recipe.probe_extras is not None or command is not None
    for place, names, options in blocks:
        _validate_block(attachment, place, names, options, is_command)


def _validate_commands(workload: Any, recipe: Any) -> None:
    for cell in recipe.cells:
        place = f"recipe.cells[{cell.name}]" if cell.workload_config else "recipe"
        try:
            with variables_set(cell_environment(cell, recipe)):
                workload.check_config({**recipe.workload_config, **cell.workload_config}, f"{place}.workload_config")
        except OptionsError as error:
            raise RecipeSchemaError(str(error)) from None


def _validate_block(
    attachment: Attachment,
    place: str,
    names: tuple[str, ...],
    options: Mapping[str, Mapping[str, str]],
    is_command: bool,
) -> None:
    subdirectories: dict[str, str] = {}
    for name in attachment.ours(names):
        try:
            collector = attachment.load(name)
            validated = collector.validate(options.get(name))
            if not is_command:
                collector.check_in_process(validated)
        except OptionsError as error:
            raise RecipeSchemaError(str(error.below(f"{place}.{name}"))) from None
        except CollectorsError as error:
            raise RecipeSchemaError(f"{place}.{name}: {error}") from None
        other = subdirectories.setdefault(collector.output_subdir, name)
        if other != name:
            raise RecipeSchemaError(
                f"{place}: {other} and {name} both write into {collector.output_subdir}/ and would take each other's "
                "files for their own; ask for them in separate cells"
            )
        if is_command and takes_the_script(names, options):
            try:
                collector.plan(Launch.of_this_process(_UNDER_PROTON), validated, Capture(Path("TRIAL_DIR"), "RUN_ID"))
            except LaunchError as error:
                raise RecipeSchemaError(
                    f"{place}: {name} cannot go together with proton in mode: cli, which runs the command's script "
                    f"itself ({error}). Use 'proton: {{mode: env}}', other options of {name}, or separate cells"
                ) from None


def cell_environment(cell: Any, recipe: Any) -> dict[str, str]:
    """The variables that the cell's environment, mitigations and extra_env set, as the dispatcher merges them."""
    from aorta.registry import RegistryError, get_environment, get_mitigation

    files = list(recipe.sidecar_files) or None
    merged: dict[str, str] = {}
    inline = {environment.name: environment.env for environment in recipe.inline_environments}
    if cell.environment in inline:
        merged.update(inline[cell.environment])
    else:
        with contextlib.suppress(RegistryError, LookupError):  # the host's own complaint comes next
            merged.update(get_environment(cell.environment, extra_files=files).env)
    for name in cell.mitigations:
        merged.update(get_mitigation(name, extra_files=files))
    merged.update(recipe.extra_env)
    merged.update(cell.extra_env)
    return merged
