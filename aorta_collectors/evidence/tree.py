"""The folders of a run directory in which trials, receipts and ledgers lie, found and opened without following a link.

The measured program could write here. A link is noted and passed over, wherever it leads; each folder is opened from
the run directory down, relative to the one above it, and what lies in it is read through that descriptor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, ArtifactDirectory, DirectoryMissing, Kind
from aorta_collectors.evidence.ledger import LEDGER
from aorta_collectors.evidence.receipt import trial_coordinates

# The artifacts of a trial, which the program made: no trial of the host lies below.
_ARTIFACTS = re.compile(r"trial_d\d+_m\d+_t\d+$")
_OURS = re.compile(r"receipt_.*\.json$")
# The host nests six deep; a program can nest without end.
_DEEPEST = 64
_MOST_PASSED_OVER = 1000


@dataclass(frozen=True)
class Folder:
    """One folder, open while the loop over the tree is at it.

    Attributes:
        kinds: What the trial records, receipts and ledger in it are, by name.
        artifacts: Names of the folders in it that hold what trials left.
    """

    path: Path
    directory: ArtifactDirectory
    kinds: Mapping[str, Kind]
    artifacts: tuple[str, ...]

    def refusal(self, name: str) -> str | None:
        """Why `name` is not read; None for a regular file."""
        kind = self.kinds[name]
        return None if kind is Kind.FILE else f"{name} is a {kind.value}, which is not followed"


class Tree:
    """A run directory.

    Attributes:
        links: Symbolic links to whatever that were passed over, the first thousand.
        unreadable: Folders that could not be looked at, and why.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.links: list[Path] = []
        self.unreadable: dict[Path, str] = {}
        self._anchor = Anchor(run_dir)

    def folders(self) -> Iterator[Folder]:
        """Every folder, one above before those in it, in the order of names.

        Raises:
            ArtifactError: The run directory itself cannot be read.
        """
        if not self.run_dir.is_dir():
            raise ArtifactError(f"{self.run_dir} is not a directory")
        waiting = [self.run_dir]
        while waiting:
            path = waiting.pop()
            try:
                with self._anchor.open(path) as directory:
                    folder, inner = self._look(path, directory)
                    waiting += sorted(inner, reverse=True)
                    yield folder
            except DirectoryMissing:
                if path == self.run_dir:
                    raise
            except ArtifactError as error:
                if path == self.run_dir:
                    raise
                if len(self.unreadable) < _MOST_PASSED_OVER:
                    self.unreadable[path] = str(error)

    def _look(self, path: Path, directory: ArtifactDirectory) -> tuple[Folder, list[Path]]:
        kinds: dict[str, Kind] = {}
        inner: list[Path] = []
        artifacts: list[str] = []
        depth = len(path.relative_to(self.run_dir).parts)
        for name, kind in directory.entries():
            if name == LEDGER or trial_coordinates(name) is not None or _OURS.match(name):
                kinds[name] = kind
            elif kind is Kind.LINK:
                if len(self.links) < _MOST_PASSED_OVER:
                    self.links.append(path / name)
            elif kind is Kind.DIRECTORY and _ARTIFACTS.match(name):
                artifacts.append(name)
            elif kind is Kind.DIRECTORY:
                if depth >= _DEEPEST:
                    raise ArtifactError(f"folders are nested deeper than {_DEEPEST}, the most that are looked at")
                inner.append(path / name)
        return Folder(path, directory, dict(sorted(kinds.items())), tuple(sorted(artifacts))), inner
