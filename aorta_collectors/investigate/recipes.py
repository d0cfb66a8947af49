"""The recipe of one run: one cell and one trial, with the collectors of the investigation or with none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.errors import CollectorsError, OptionsError
from aorta_collectors.investigate.commands import SEED, filled_in

TICKET = "investigation"


def command_recipe(collect: Mapping[str, Mapping[str, str]], timeout_s: float | None) -> str:
    """YAML text of a recipe that runs the command which follows it.

    Args:
        collect: Blocks by the collector's name; empty for a run without the tool.
    """
    document: dict[str, Any] = {
        "schema_version": 1,
        "mode": "probe",
        "ticket": TICKET,
        "trials": 1,
        "mitigation_axis": ["none"],
        "diagnostic_axis": ["none"],
    }
    if timeout_s is not None:
        document["timeout_per_trial"] = timeout_s
    return _dumped(document, collect)


def cell_recipe(
    recipe: Path, cell: str, collect: Mapping[str, Mapping[str, str]], seed: int | None, repetition: int
) -> str:
    """YAML text of a recipe with one cell of another one, and our collectors in the place of those that it asks for.

    {seed} and {repetition} are replaced in its workload_config; a value that is {seed} alone becomes a number.

    Raises:
        OptionsError: It has no such cell.
        CollectorsError: The host refuses it.
    """
    import yaml

    from aorta_collectors.host.attach import require_attached
    from aorta_collectors.host.single_cells import single_cells

    require_attached()  # the recipe may ask for collectors that the host does not know by itself
    cells = {found.name: found for found in single_cells(recipe, (), "")}
    if cell not in cells:
        raise OptionsError(str(recipe), f"has no cell {cell}; its cells: {', '.join(cells)}")
    document: dict[str, Any] = yaml.safe_load(cells[cell].document)
    if document.get("mode") == "probe":
        raise OptionsError(str(recipe), "runs a command (mode: probe): give that with --baseline and --candidate")
    document["ticket"], document["trials"] = TICKET, 1
    (entry,) = document["cells"]
    entry.pop("trials", None)
    for block in (document, entry):
        block.pop("collect", None)
        if "workload_config" in block:
            block["workload_config"] = _filled_in(block["workload_config"], seed, repetition)
    return _dumped(document, collect)


def check_cell(recipe: Path, cell: str, collect: Mapping[str, Mapping[str, str]], seed: int | None) -> str:
    """Have the host validate a cell as it will be run. Returns how collectors get into it.

    Raises:
        CollectorsError: The host, or a collector, refuses it.
    """
    import tempfile

    from aorta_collectors.host.check import check_recipe

    check_recipe(recipe, ["--recipe", str(recipe)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recipe.yaml")
        path.write_text(cell_recipe(recipe, cell, collect, seed, 1))
        (planned,) = check_recipe(path, ["--recipe", str(path)]).cells
    if planned.refused:
        raise CollectorsError(f"{recipe}: cell {cell}: {planned.refused}")
    if planned.is_off:
        raise CollectorsError(f"{recipe}: cell {cell} runs without collectors (AORTA_COLLECTORS=off); choose another")
    return planned.launch.route if planned.launch is not None else "in-process"


def _filled_in(value: Any, seed: int | None, repetition: int) -> Any:
    if isinstance(value, str):
        return seed if value == SEED and seed is not None else filled_in(value, seed, repetition)
    if isinstance(value, list):
        return [_filled_in(item, seed, repetition) for item in value]
    if isinstance(value, dict):
        return {name: _filled_in(item, seed, repetition) for name, item in value.items()}
    return value


def _dumped(document: dict[str, Any], collect: Mapping[str, Mapping[str, str]]) -> str:
    import yaml

    if collect:
        document["collect"] = {name: dict(block) for name, block in collect.items()}
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
