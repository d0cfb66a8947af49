"""Each cell's launch, known before anything runs: a dry run shows it, and what no evidence can come of is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aorta_collectors.api import Capture
from aorta_collectors.environment import switched_off, variables_set
from aorta_collectors.errors import LaunchError
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.preflight import cell_environment
from aorta_collectors.host.workload import command_workload
from aorta_collectors.host.wrapping import Wrapping, takes_the_script
from aorta_collectors.launch.value import Launch

_RUN_ID = "RUN_ID"
_TRIAL_DIR = Path("TRIAL_DIR")


def planned_launch(attachment: Attachment, cell: Any, recipe: Any, argv: tuple[str, ...] | None) -> Launch | None:
    """A cell's launch with all of its collectors in it, ours and the host's.

    Args:
        argv: The command of a probe sweep; None in the workload flow.

    Returns:
        None for a cell that runs without collectors. Of a workload inside the host's process there is no command, but
        the same configuration, as variables.

    Raises:
        LaunchError: One of ours cannot be attached to it.
        RuntimeError, ValueError: One of the host's cannot.
    """
    environment = cell_environment(cell, recipe)
    if switched_off(environment):
        return None
    names = tuple(cell.effective_collect(recipe.collect))
    options = cell.effective_collect_options(recipe.collect_options)
    command = command_workload(recipe.workload) if argv is None else None
    with variables_set(environment):
        if argv is not None:
            launch = Launch.of_this_process(argv)
        elif command is not None:
            config = {**recipe.workload_config, **cell.workload_config, "_aorta_trial_env": environment}
            launch = command.planned_launch(config)
        else:
            launch = Launch((), route="in-process")
            for name in attachment.ours(names):
                launch = _plan(attachment, name, launch, options)
            return launch.without_absent(os.environ)
        return _wrapped(attachment, launch, names, options).without_absent(os.environ)


def refuse_launches(attachment: Attachment, recipe: Any, argv: tuple[str, ...] | None) -> None:
    """Name the cells that ask for evidence which cannot come of their launch.

    Raises:
        click.ClickException: There are some.
    """
    refused: dict[str, list[str]] = {}
    for cell in recipe.cells:
        if attachment.ours(cell.effective_collect(recipe.collect)):
            try:
                planned_launch(attachment, cell, recipe, argv)
            except LaunchError as error:
                refused.setdefault(str(error), []).append(cell.name)
            except (RuntimeError, ValueError):
                pass  # of the host's own collectors, which says so itself in the trial
    if refused:
        reasons = "; ".join(f"{reason} (cells: {', '.join(cells)})" for reason, cells in refused.items())
        raise click.ClickException(f"nothing was run, since a launch is refused: {reasons}")


def _plan(attachment: Attachment, name: str, launch: Launch, options: Mapping[str, Mapping[str, str]]) -> Launch:
    collector = attachment.load(name)
    capture = Capture(_TRIAL_DIR / collector.output_subdir, _RUN_ID)
    return collector.plan(launch, collector.validate(options.get(name)), capture)


def _wrapped(
    attachment: Attachment, launch: Launch, names: tuple[str, ...], options: Mapping[str, Mapping[str, str]]
) -> Launch:
    """The launch through all collectors, in the host's order, as wrap_argv_for_collectors does without its directories.

    Raises LaunchError, RuntimeError or ValueError.
    """
    from aorta.run import collectors

    wrapping = Wrapping(
        launch,
        lambda name, before, _out_dir: _plan(attachment, name, before, options),
        script_taken=takes_the_script(names, options),
    )
    ours = {name: attachment.load(name).output_subdir for name in attachment.ours(names)}
    specs = wrapping.specs(collectors._registry(), ours)
    wrapped = list(launch.argv)
    for name in reversed(collectors.active_collectors({collectors.CONFIG_KEY_COLLECT: list(names)})):
        spec = specs[name]
        if spec.wrap is not None and spec.output_subdir is not None:
            wrapped = spec.wrap(wrapped, _TRIAL_DIR / spec.output_subdir, dict(options.get(name) or {}))
    return wrapping.launch
