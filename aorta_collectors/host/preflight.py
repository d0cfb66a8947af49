"""Before anything runs: options are validated, and a dry run shows each cell's launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from aorta.run.discovery import get_workload_policy
from aorta.run.validation import resolve_trial_isolation_policy
from aorta.triage.recipe import RecipeSchemaError

from aorta_collectors.api import Capture
from aorta_collectors.errors import CollectorsError, LaunchError, OptionsError
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.switch import switched_off
from aorta_collectors.launch.value import Launch

NOT_ISOLATED = (
    "cannot be captured in trials with process isolation yet. Use trial_isolation: in_process if the workload allows "
    "it, or take the collector out"
)


def preflight_validate(attachment: Attachment, original: Callable[..., None], recipe: Any) -> None:
    """Validate every collect: block of ours, at recipe and cell scope. Runs in a dry run too, and stays pure."""
    original(recipe)
    isolated = _is_isolated(recipe)
    _validate_block(attachment, "recipe.collect", recipe.collect, recipe.collect_options, recipe, isolated)
    for cell in recipe.cells:
        if cell.collect is not None:
            place = f"recipe.cells[{cell.name}].collect"
            _validate_block(attachment, place, cell.collect, cell.collect_options or {}, recipe, isolated)


def _validate_block(
    attachment: Attachment,
    place: str,
    names: tuple[str, ...],
    options: Mapping[str, Mapping[str, str]],
    recipe: Any,
    isolated: bool,
) -> None:
    for name in attachment.ours(names):
        if isolated:
            raise RecipeSchemaError(f"{place}.{name}: {NOT_ISOLATED}")
        try:
            collector = attachment.load(name)
            validated = collector.validate(options.get(name))
            if recipe.probe_extras is None:
                collector.check_in_process(validated)
        except OptionsError as error:
            raise RecipeSchemaError(str(error.below(f"{place}.{name}"))) from None
        except CollectorsError as error:
            raise RecipeSchemaError(f"{place}.{name}: {error}") from None


def _is_isolated(recipe: Any) -> bool:
    """Whether the host will run this recipe's trials in processes of their own."""
    try:
        policy = get_workload_policy(recipe.workload)
        effective = resolve_trial_isolation_policy(recipe.workload, policy, recipe.trial_isolation)
    except ValueError:
        return False  # the host's own complaint comes next
    return bool(effective == "process")


def print_dry_run(
    attachment: Attachment, original: Callable[..., None], recipe: Any, subprocess_argv: tuple[str, ...] | None = None
) -> None:
    """The host's own plan, then what each cell would launch with our collectors in it."""
    original(recipe, subprocess_argv=subprocess_argv)
    lines: list[str] = []
    for cell in recipe.cells:
        names = attachment.ours(cell.effective_collect(recipe.collect))
        if names:
            lines.append(f"  {cell.name}:")
            options = cell.effective_collect_options(recipe.collect_options)
            lines += [f"    {line}" for line in _planned(attachment, cell, recipe, names, options, subprocess_argv)]
    if lines:
        click.echo("Collectors (dry run: nothing is launched, and nothing has been captured):")
        for line in lines:
            click.echo(line)


def _planned(
    attachment: Attachment,
    cell: Any,
    recipe: Any,
    names: tuple[str, ...],
    options: Mapping[str, Mapping[str, str]],
    argv: tuple[str, ...] | None,
) -> list[str]:
    if switched_off(cell_environment(cell, recipe)):
        return ["off: this cell runs without collectors (AORTA_COLLECTORS=off)"]
    launch = Launch.of_this_process(argv) if argv is not None else Launch((), route="in-process")
    for name in names:
        collector = attachment.load(name)
        capture = Capture(Path("TRIAL_DIR") / collector.output_subdir, "RUN_ID")
        try:
            launch = collector.plan(launch, collector.validate(options.get(name)), capture)
        except LaunchError as error:
            return [f"refused: {error}"]
    shown = launch.without_absent(os.environ)
    note = f" ({launch.note})" if launch.note else ""
    if argv is None:
        # Not an environment there, but the same configuration: shown the same way.
        return [
            f"route: in-process, armed around {recipe.workload}'s setup() and run() in aorta's own process",
            shown.shell_text(),
        ]
    return [f"route: {launch.route}{note}", shown.shell_text()]


def cell_environment(cell: Any, recipe: Any) -> dict[str, str]:
    """The variables that the cell's environment, mitigations and extra_env set, as the dispatcher merges them."""
    from aorta.registry import RegistryError, get_environment, get_mitigation

    files = list(recipe.sidecar_files) or None
    merged: dict[str, str] = {}
    try:
        merged.update(get_environment(cell.environment, extra_files=files).env)
    except (RegistryError, LookupError):
        pass  # an inline environment of the recipe; those set no variables
    for name in cell.mitigations:
        merged.update(get_mitigation(name, extra_files=files))
    merged.update(recipe.extra_env)
    merged.update(cell.extra_env)
    return merged
