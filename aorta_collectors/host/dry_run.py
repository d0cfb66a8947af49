"""`--dry-run`: each cell's launch as it would be, with all of its collectors in it, ours and the host's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from aorta_collectors.errors import LaunchError
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.planned import planned_launch, refuse_launches


def print_dry_run(
    attachment: Attachment, original: Callable[..., None], recipe: Any, subprocess_argv: tuple[str, ...] | None = None
) -> None:
    """The host's own plan, then what each cell would launch with its collectors in it.

    Raises:
        click.ClickException: A launch is refused, as the sweep itself would refuse it.
    """
    original(recipe, subprocess_argv=subprocess_argv)
    lines: list[str] = []
    for cell in recipe.cells:
        if attachment.ours(cell.effective_collect(recipe.collect)):
            lines.append(f"  {cell.name}:")
            lines += [f"    {line}" for line in _planned(attachment, cell, recipe, subprocess_argv)]
    if lines:
        click.echo("Collectors (dry run: nothing is launched, and nothing has been captured):")
        for line in lines:
            click.echo(line)
    refuse_launches(attachment, recipe, subprocess_argv)


def _planned(attachment: Attachment, cell: Any, recipe: Any, argv: tuple[str, ...] | None) -> list[str]:
    try:
        launch = planned_launch(attachment, cell, recipe, argv)
    # What the host's profilers raise where they cannot attach: the trial would end with it.
    except (LaunchError, RuntimeError, ValueError) as error:
        return [f"refused: {error}"]
    if launch is None:
        return ["off: this cell runs without collectors (AORTA_COLLECTORS=off)"]
    if launch.route == "in-process":
        apart = recipe.trial_isolation == "process"
        where = "a process of its own, one each trial" if apart else "aorta's own process"
        route = f"in-process, armed around {recipe.workload}'s setup() and run() in {where}"
    else:
        route = f"{launch.route} ({launch.note})" if launch.note else launch.route
    lines = [f"route: {route}"]
    if launch.directory != os.curdir:
        lines.append(f"started in: {launch.directory}")
    if recipe.probe_extras is not None and recipe.probe_extras.env_passthrough_mode == "file":
        lines.append("AORTA_ENV_FILE: these variables stand in it as well, except for PYTHONPATH")
    return [*lines, launch.shell_text()]
