"""`aorta-collectors check RECIPE [-- COMMAND]`: would it run, and would each cell be observed?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import output_options
from aorta_collectors.report.check import render_check
from aorta_collectors.scaleout.request import Request

if TYPE_CHECKING:
    from aorta_collectors.host.check import Planned

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("recipe", type=_FILE)
@click.option("--collect", default="", help="Collectors that replace the recipe's, separated by commas.")
@click.option("--mitigations-file", multiple=True, type=_FILE, help="As of aorta sweep run (repeatable).")
@output_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def check(
    recipe: Path,
    collect: str,
    mitigations_file: tuple[Path, ...],
    as_json: bool,
    output: Path | None,
    command: tuple[str, ...],
) -> None:
    """Validate RECIPE and show what each cell would launch, without running or writing anything.

    The recipe is checked as `aorta-collectors sweep run` checks it: as `aorta sweep run` does, with the collect: blocks
    of our collectors. A probe recipe's command follows after --. TRIAL_DIR and RUN_ID stand for what each trial has of
    its own.

    Example: aorta-collectors check sweep.yaml --collect layer_numerics -- torchrun --nproc_per_node=8 train.py

    Exit codes: 0 it would run; 1 the launch of a cell is refused, so that nothing would be run; 2 the recipe, or its
    command, is not valid.
    """
    from aorta_collectors.host.check import check_recipe

    request = Request.of(recipe, command, collect, mitigations_file)
    checked = check_recipe(recipe, [*request.words(Path(request.recipe)), *request.tail])
    with Output(output) as out:
        if as_json:
            cells = [_for_json(cell) for cell in checked.cells]
            out.json({"workload": checked.workload, "other_names": list(checked.other_names), "cells": cells})
        else:
            render_check(out.console(), checked.cells, checked.workload, checked.other_names)
    sys.exit(1 if any(cell.refused for cell in checked.cells) else 0)


def _for_json(cell: Planned) -> dict[str, Any]:
    launch = cell.launch
    return {
        "name": cell.name,
        "mitigations": list(cell.mitigations),
        "environment": cell.environment,
        "trials": cell.trials,
        "variables": cell.variables,
        "collectors": list(cell.collectors),
        "ours": list(cell.ours),
        "off": cell.is_off,
        "refused": cell.refused or None,
        "launch": None
        if launch is None
        else {
            "route": launch.route,
            "note": launch.note,
            "directory": launch.directory,
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "shell": launch.shell_text(),
        },
    }
