"""What `aorta sweep run` would launch, cell by cell: validated by the host, planned as a dry run plans it, not run."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aorta_collectors.environment import switched_off
from aorta_collectors.errors import CollectorsError, LaunchError
from aorta_collectors.host.attach import HOST_NAMES, require_attached
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.planned import planned_launch
from aorta_collectors.host.preflight import cell_environment
from aorta_collectors.launch.value import Launch


class RecipeError(CollectorsError):
    """A recipe, or a command beside it, that the host refuses; the message is the host's own."""

    exit_code = 2


@dataclass(frozen=True)
class Planned:
    """One cell.

    Attributes:
        trials: At most.
        variables: What the cell's environment, mitigations and extra_env set.
        collectors: That are asked for, ours and the host's.
        ours: Those of them that are ours.
        launch: What is launched; None where that is refused.
        is_off: Whether the cell runs without collectors, although some are asked for.
        refused: Why it is refused, or "".
    """

    name: str
    mitigations: tuple[str, ...]
    environment: str
    trials: int
    variables: dict[str, str]
    collectors: tuple[str, ...]
    ours: tuple[str, ...]
    launch: Launch | None
    is_off: bool
    refused: str


@dataclass(frozen=True)
class Checked:
    """A recipe that the host accepts.

    Attributes:
        workload: None where a command is run.
        other_names: For which a plain `aorta sweep run` refuses this recipe.
    """

    workload: str | None
    cells: tuple[Planned, ...]
    other_names: tuple[str, ...]


def check_recipe(recipe: Path, words: Sequence[str]) -> Checked:
    """Validate a recipe and plan its launches. Nothing is run or written.

    Args:
        words: What would follow `aorta sweep run`, the command of a probe recipe with its `--` included.

    Raises:
        RecipeError: The host refuses it, a collect: block of ours included.
        CollectorsError: The plugin does not attach to this host.
    """
    from aorta.triage.recipe import RecipeSchemaError, load_recipe_mapping

    attachment = require_attached()
    try:
        # A dry run of one of these writes its report.
        if load_recipe_mapping(recipe).get("mode") == "sanitizer":
            raise RecipeError(f"{recipe} is for the host's sanitizers (mode: sanitizer), which launch no cells")
    except (RecipeSchemaError, AttributeError, OSError, UnicodeDecodeError):
        pass  # the host says what is wrong with it below
    loaded, argv = _loaded(words)
    probe = loaded.probe_extras is not None
    cells = tuple(_planned(attachment, cell, loaded, argv) for cell in loaded.cells)
    return Checked(None if probe else loaded.workload, cells, () if probe else _other_names(recipe))


def _other_names(recipe: Path) -> tuple[str, ...]:
    """Names in the collect: blocks of a workload recipe that the host does not know by itself.

    It reads those before it loads a plugin. In a probe recipe it resolves mitigations first, and so loads the plugin.
    """
    from aorta.triage.recipe import load_recipe_mapping

    mapping = load_recipe_mapping(recipe)
    blocks = [mapping.get("collect"), *(cell.get("collect") for cell in mapping["cells"])]
    return tuple(sorted({name for block in blocks for name in block or ()} - HOST_NAMES))


def _loaded(words: Sequence[str]) -> tuple[Any, tuple[str, ...] | None]:
    """The recipe as the host has loaded and validated it, its options included, and the command."""
    from aorta.cli import main

    with _dry_runs() as seen, contextlib.redirect_stdout(io.StringIO()):
        try:
            main.main(["sweep", "run", "--dry-run", *words], prog_name="aorta", standalone_mode=False)
        except click.ClickException as error:
            raise RecipeError(" ".join(error.format_message().split())) from None
        except UnicodeDecodeError as error:
            raise RecipeError(f"the recipe, or a mitigations file, is no text in UTF-8: {error}") from None
    if not seen:
        raise RecipeError("the host has nothing to run for this recipe")
    return seen[0]


@contextlib.contextmanager
def _dry_runs() -> Iterator[list[tuple[Any, tuple[str, ...] | None]]]:
    """What the host would print as a dry run within this context is put into a list instead."""
    from aorta.triage import runner

    seen: list[tuple[Any, tuple[str, ...] | None]] = []
    printing = runner._print_dry_run

    @functools.wraps(printing)  # with the mark of the plugin, which attaches once more when the host loads its registry
    def noted(recipe: Any, subprocess_argv: tuple[str, ...] | None = None) -> None:
        seen.append((recipe, subprocess_argv))

    runner._print_dry_run = noted
    try:
        yield seen
    finally:
        runner._print_dry_run = printing


def _planned(attachment: Attachment, cell: Any, recipe: Any, argv: tuple[str, ...] | None) -> Planned:
    names = tuple(cell.effective_collect(recipe.collect))
    ours = attachment.ours(names)
    variables = cell_environment(cell, recipe)
    launch, refused = None, ""
    try:
        launch = planned_launch(attachment, cell, recipe, argv)
    # What the host's profilers raise where they cannot attach: the trial would end with it.
    except (LaunchError, RuntimeError, ValueError) as error:
        refused = str(error)
    is_off = bool(ours) and switched_off(variables)
    if launch is None and not refused:
        launch = Launch(argv or (), route="unchanged" if argv else "in-process")
    most = recipe.stop_after.max_trials if recipe.stop_after is not None else cell.effective_trials(recipe.trials)
    return Planned(
        cell.name,
        tuple(cell.mitigations),
        str(cell.environment),
        int(most),
        variables,
        names,
        ours,
        launch,
        is_off,
        refused,
    )
