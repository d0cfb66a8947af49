"""The ledger of a submission: what was asked for, and which job runs each cell. A later call continues from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aorta_collectors.errors import ArtifactError, CollectorsError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.scaleout.request import Request

#: Name of the file in the output directory.
LEDGER = "submission.json"


@dataclass(frozen=True)
class Entry:
    """The latest job of one cell.

    Attributes:
        attempt: Counts the jobs of this cell, from 1; its results lie in jobs/<cell>/<attempt>.
        executor: "local" or "slurm".
        job: The executor's id: of Slurm as in squeue, of this machine the process id.
        folder: Where submitit keeps the job's log.
        host: Name of the machine that it was submitted on, which is where a local job runs.
        state: "submitted", or how it ended: see `outcome`.
        reason: Why the cell is not done, in words.
    """

    attempt: int
    executor: str
    job: str
    folder: str
    host: str
    state: str = "submitted"
    reason: str = ""


@dataclass
class Submission:
    """All cells of one output directory.

    Attributes:
        calls: How many calls have submitted anything.
        cells: By name; a cell that was never submitted is not in it.
    """

    request: Request
    calls: int = 0
    cells: dict[str, Entry] = field(default_factory=dict)

    def write(self, output: Path) -> None:
        """Replace the ledger in `output` atomically. Raises ArtifactError."""
        content = {
            "schema_version": 1,
            "digest": self.request.digest,
            "request": asdict(self.request),
            "calls": self.calls,
            "cells": {name: asdict(entry) for name, entry in self.cells.items()},
        }
        with Anchor(output).open(output) as directory:
            directory.write(LEDGER, json.dumps(content, indent=2).encode())


def open_submission(output: Path, request: Request) -> Submission:
    """The submission that lies in `output`, or a new one.

    Raises:
        CollectorsError: Another sweep than `request` lies there.
        ArtifactError: What lies there is no ledger.
    """
    if not (output / LEDGER).exists():
        return Submission(request)
    try:
        with Anchor(output).open(output) as directory:
            content = json.loads(directory.read(LEDGER))
        cells = {name: Entry(**entry) for name, entry in content["cells"].items()}
        found = Submission(Request.from_json(content["request"]), int(content["calls"]), cells)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{output / LEDGER}: not the ledger of a submission ({type(error).__name__}: {error}). "
            "Give another --output, or move this directory away"
        ) from None
    if found.request.digest != request.digest:
        changed = ", ".join(found.request.differences(request))
        raise CollectorsError(
            f"{output} holds the jobs of another sweep: its digest is {found.request.digest[:12]}, that of this call "
            f"is {request.digest[:12]} (changed: {changed}). Give another --output, or undo the change to continue"
        )
    return Submission(request, found.calls, found.cells)
