"""The ledger of a sweep: which trials were asked for evidence, so that one whose record is gone is missed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor

#: Name of the file in the sweep's run directory.
LEDGER = "evidence.json"
_GONE = "the record of this trial is gone: a later one, what it ran, or somebody since has removed it"


@dataclass(frozen=True)
class Requested:
    """One trial and collector.

    Attributes:
        cell: The cell's directory name.
        trial: The trial's id, or "-" for a cell that ended without any.
        reason: What to say if there is no record of it.
    """

    cell: str
    trial: str
    collector: str
    reason: str = _GONE


def write_ledger(run_dir: Path, entries: Sequence[Requested]) -> None:
    """Raises ArtifactError."""
    content = json.dumps({"schema_version": 1, "requested": [asdict(entry) for entry in entries]}, indent=2)
    with Anchor(run_dir).open(run_dir) as directory:
        directory.write(LEDGER, content.encode())


def read_ledger(path: Path) -> list[Requested]:
    """Raises ArtifactError if it is not a ledger."""
    try:
        with Anchor(path.parent).open(path.parent) as directory:
            entries = json.loads(directory.read(path.name))["requested"]
        return [Requested(**entry) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path}: not the ledger of a sweep ({type(error).__name__}: {error})") from None
