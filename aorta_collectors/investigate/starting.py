"""What holds for all runs of an investigation: recorded before the first, and compared with the present after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.errors import CollectorsError
from aorta_collectors.investigate.files import Investigation, utc_now, write_metadata
from aorta_collectors.investigate.machine import differences, environment_now
from aorta_collectors.investigate.revisions import (
    CODE,
    code_changes,
    files_of,
    fingerprint,
    revision,
    trees_of,
    trees_of_environment,
)

_MOST_SHOWN = 20
_RULE = (
    "Held against the first start are machine, packages and variables, the files that the commands name, and tracked "
    f"source files ({', '.join(CODE[:2])}, ...) of their work trees; not those of the interpreter's."
)


class NotAsBefore(CollectorsError):
    """Something that runs are compared by is no longer as it was.

    Args:
        lines: For the screen, one below the other.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(" ".join(line.strip() for line in lines))
        self.lines = tuple(lines)


def started(investigation: Investigation, next_run: int, *, allow_changes: bool) -> Investigation:
    """Record machine, software and code at the first start; at a later one, see that they are the same.

    Args:
        next_run: Number of the run that comes next.
        allow_changes: Whether differences are written down instead of refused.

    Raises:
        NotAsBefore: Something is no longer as it was.
    """
    metadata = dict(investigation.metadata)
    if metadata["started_at"] is None:
        metadata |= _present(metadata)
        metadata["started_at"] = utc_now()
    else:
        known = {line for change in metadata.get("changes", ()) for line in change["what"]}
        found = [line for line in _changed(metadata) if line not in known]
        if not found:
            return investigation
        if not allow_changes:
            raise NotAsBefore(_refusal(found))
        change = {"at": utc_now(), "before_run": next_run, "what": found}
        metadata["changes"] = [*metadata.get("changes", ()), change]
    write_metadata(investigation.root, metadata)
    return Investigation(investigation.root, metadata)


def _present(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Environment, revisions and files as they are now."""
    cwd = Path(metadata["cwd"])
    files: list[Path] = []
    for variant in metadata["variants"]:
        if variant["command"] is None:
            files.append(Path(variant["recipe"]))
        else:
            files += files_of(variant["command"], variant["environment"], cwd)
    trees = dict.fromkeys([*map(Path, metadata["revisions"]), *trees_of(cwd, files)])
    others = [tree for tree in trees_of_environment() if tree not in trees]
    return {
        "environment": environment_now(),
        "revisions": {
            **{str(tree): revision(tree) for tree in trees},
            **{str(tree): revision(tree, of_environment=True) for tree in others},
        },
        "files": {str(path): fingerprint(path) for path in dict.fromkeys(files)},
    }


def _changed(metadata: Mapping[str, Any]) -> list[str]:
    """What differs between the first start and now, one line each."""
    files = metadata.get("files", {})
    return [
        *differences(metadata["environment"], environment_now()),
        *(line for tree, was in metadata["revisions"].items() for line in code_changes(Path(tree), was, files)),
        *differences(files, {path: fingerprint(Path(path)) for path in files}),
    ]


def _refusal(found: Sequence[str]) -> list[str]:
    more = [f"  and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return [
        "not as it was when the first run was started, so that runs could not be compared:",
        *(f"  {line}" for line in found[:_MOST_SHOWN]),
        *more,
        _RULE,
        "Put it back, or declare a new investigation. --allow-changes goes on, and records what differs",
    ]
