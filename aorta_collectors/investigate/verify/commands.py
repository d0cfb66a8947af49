"""Whether the commands of an investigation can be run again: their programs and files are there, and are the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.commands import check_command
from aorta_collectors.investigate.files import METADATA, Investigation, Run
from aorta_collectors.investigate.revisions import fingerprint
from aorta_collectors.investigate.verify.fault import Fault

_PUT_BACK = "Put it back, or declare a new investigation of what there is now"


def command_faults(investigation: Investigation, runs: list[Run]) -> Iterator[Fault]:
    """What keeps commands from being run again as they were.

    Args:
        runs: Those whose own command lines are looked at.
    """
    metadata = investigation.metadata
    place = f"{investigation.root / METADATA}"
    if metadata["mode"] != "fresh":
        return
    cwd = Path(metadata["cwd"])
    if not cwd.is_absolute() or not cwd.is_dir():
        yield Fault(f"{place}: cwd", f"{cwd} is no directory", _PUT_BACK)
        return
    yield from _of_variants(metadata, cwd, place)
    for path, recorded in metadata.get("files", {}).items():
        if not os.path.isabs(path):
            yield Fault(f"{place}: files", f"{path} is not absolute", "The record was edited; it cannot be relied on")
        found = fingerprint(Path(path))
        if found != recorded:
            yield Fault(path, f"it is {found}, and was {recorded} when the first run was started", _PUT_BACK)
    yield from _of_runs(runs)


def _of_variants(metadata: Mapping[str, Any], cwd: Path, place: str) -> Iterator[Fault]:
    for variant in metadata["variants"]:
        where = f"{place}: {variant['name']}"
        if variant["command"] is None:
            if variant["recipe"] is None or not Path(variant["recipe"]).is_file():
                yield Fault(where, f"its recipe {variant['recipe']} is not there", _PUT_BACK)
            continue
        try:
            check_command("command", variant["command"], variant["environment"], cwd)
        except OptionsError as error:
            yield Fault(where, f"its command cannot be run again: {error.message}", _PUT_BACK)


def _of_runs(runs: list[Run]) -> Iterator[Fault]:
    gone: dict[str, Run] = {}
    for run in runs:
        first = run.record["command"][0]
        if first not in gone and not os.access(first, os.X_OK):
            gone[first] = run
    for first, run in gone.items():
        yield Fault(
            f"{run.directory}: command",
            f"{first} is not there, or cannot be executed",
            "Install aorta-collectors there again, or name another one in its place",
        )
