"""A recipe as one recipe a cell, so that a job can run one cell as the whole sweep would have run it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aorta_collectors.errors import CollectorsError
from aorta_collectors.host.attach import require_attached
from aorta_collectors.registry import collector_names


@dataclass(frozen=True)
class SingleCell:
    """One cell.

    Attributes:
        name: As in the recipe; also the name of its directory.
        requested: Collectors of this plugin, or of one built on it, that the cell asks for.
        document: Text of a recipe that holds this cell alone.
    """

    name: str
    requested: tuple[str, ...]
    document: str


def validate_sweep(words: Sequence[str]) -> None:
    """Let the host check a whole sweep, collect: blocks included, as `aorta-collectors sweep run --dry-run` does.

    Args:
        words: What would follow `aorta sweep run`, the command of a probe recipe with its `--` included.

    Raises:
        CollectorsError: The host refuses it, with the host's own message; or the plugin does not attach to this host.
    """
    from aorta.cli import main

    require_attached()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main.main(["sweep", "run", "--dry-run", *words], prog_name="aorta", standalone_mode=False)
    except click.ClickException as error:
        raise CollectorsError(" ".join(error.format_message().split())) from None
    except UnicodeDecodeError as error:
        raise CollectorsError(f"the recipe, or a mitigations file, is no text in UTF-8: {error}") from None


def single_cells(recipe: Path, mitigation_files: Sequence[Path], collect: str) -> list[SingleCell]:
    """The cells of a recipe that the host has accepted, in the recipe's order.

    Args:
        collect: Names that replace the recipe's, separated by commas; empty leaves them.

    Raises:
        CollectorsError: The recipe has no cells that could run one by one.
    """
    from aorta.run.cli_helpers import parse_csv
    from aorta.triage.recipe import dump_recipe_mapping, load_recipe, load_recipe_mapping

    try:
        loaded = load_recipe(recipe, sidecar_files=tuple(mitigation_files) or None)
    except ValueError as error:  # a recipe for the host's sanitizers is valid in a dry run, and has no cells
        raise CollectorsError(str(error)) from None
    mapping = load_recipe_mapping(recipe)
    replaced = tuple(parse_csv(collect))
    known = collector_names()
    found = []
    for cell in loaded.cells:
        names = replaced or cell.effective_collect(loaded.collect)
        requested = tuple(name for name in dict.fromkeys(names) if name in known)
        document = _alone(mapping, cell, probe=loaded.probe_extras is not None)
        found.append(SingleCell(cell.name, requested, dump_recipe_mapping(document)))
    return found


def _alone(mapping: dict[str, Any], cell: Any, *, probe: bool) -> dict[str, Any]:
    # The baseline of the whole sweep runs elsewhere; alone, a cell is its own, which needs to be said.
    confound = {**(mapping.get("confound") or {}), "baseline_cell": cell.name}
    if probe:
        mitigation, diagnostic = cell.mitigations
        return {**mapping, "mitigation_axis": [mitigation], "diagnostic_axis": [diagnostic], "confound": confound}
    cells = [entry for entry in mapping["cells"] if entry["name"] == cell.name]
    return {**mapping, "cells": cells, "confound": confound}
