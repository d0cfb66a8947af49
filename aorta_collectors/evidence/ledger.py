"""The ledger of a sweep or run: which trials were asked for evidence, so that one whose record is gone is missed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from aorta_collectors import strict_json
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, ArtifactDirectory

#: Name of the file in the sweep's run directory, or beside the trials of a run without a sweep.
LEDGER = "evidence.json"
#: What it says of a cell that the sweep has still to run, or to end.
NOT_YET = "the sweep has not come to the end of this cell: it is still running, or it was killed"
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


def write_ledger(run_dir: Path, entries: Sequence[Requested], anchor: Anchor | None = None) -> None:
    """Replace the ledger in `run_dir`, which lies at or below the anchor. Raises ArtifactError."""
    content = json.dumps({"schema_version": 1, "requested": [asdict(entry) for entry in entries]}, indent=2)
    with (anchor or Anchor(run_dir)).open(run_dir) as directory:
        directory.write(LEDGER, content.encode())


def read_ledger(directory: ArtifactDirectory) -> list[Requested]:
    """The ledger in a sweep's run directory. Raises ArtifactError if it is not one."""
    try:
        entries = strict_json.loads(directory.read(LEDGER))["requested"]
        return [Requested(**{key: str(value) for key, value in entry.items()}) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"not the ledger of a sweep ({type(error).__name__}: {error})"
        raise ArtifactError(f"{directory.path / LEDGER}: {reason}") from None
