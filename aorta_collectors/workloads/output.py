"""What a command writes to its stdout and stderr, in two files beside the trial's record."""

from __future__ import annotations

import os
from pathlib import Path

from aorta_collectors.evidence.directory import Anchor

_TAIL_BYTES = 4000
_TAIL_LINES = 20


class Output:
    """The two files, which the command writes to by itself.

    Args:
        anchor: The results directory as it was before the command ran.
        stem: Of the trial's record, below the anchor. The host asks wrappers to name such files
            <stem>.subprocess.{stdout,stderr}.log, and would take trial_*.json for trials.

    Raises:
        ArtifactError: They cannot be made.
    """

    def __init__(self, anchor: Anchor, stem: Path) -> None:
        with anchor.open(stem.parent) as directory:
            self.out = directory.create(f"{stem.name}.subprocess.stdout.log")
            self.err = directory.create(f"{stem.name}.subprocess.stderr.log")

    def tail(self) -> list[str]:
        """The last lines of stderr, 20 at most and some 4,000 characters in all."""
        size = os.fstat(self.err.fileno()).st_size
        start = max(0, size - _TAIL_BYTES)
        text = os.pread(self.err.fileno(), _TAIL_BYTES, start).decode("utf-8", errors="replace")
        lines = text.splitlines()
        return lines[1 if start and len(lines) > 1 else 0 :][-_TAIL_LINES:]

    def close(self) -> None:
        self.out.close()
        self.err.close()
