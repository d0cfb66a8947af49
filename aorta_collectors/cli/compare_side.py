"""The words that name one side of a comparison: PATH, and of what is there perhaps one cell, trial and rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from aorta_collectors.analysis.captures import LAYER_NUMERICS, Captures, Source
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from aorta_collectors.printable import printable

_RANK = re.compile(r"(.*)@(\d+)", re.DOTALL)


@dataclass(frozen=True)
class Side:
    """One side, as it was asked for.

    Attributes:
        below: What stands behind PATH: "", "CELL" or "CELL:TRIAL".
        rank: None for all.
        text: As it was written.
    """

    path: Path
    below: str
    rank: int | None
    text: str

    def captures(
        self, cells: Sequence[str], trials: Sequence[str], ranks: Sequence[int], source: Source = LAYER_NUMERICS
    ) -> Captures:
        """What is there, restricted by this side's own words and by those given.

        Raises:
            ArtifactError: There is nothing, or not what was named.
        """
        found = captures_below(self.path, source).only(cells, trials, ranks)
        if self.below:
            names = {trial.cell for trial in found.trials}
            cell, colon, trial = self.below.rpartition(":")
            if self.below in names or not colon:
                found = found.only(cells=(self.below,))
            else:
                found = found.only(cells=(cell,) if cell else (), trials=(trial,))
        if self.rank is not None:
            found = found.only(ranks=(self.rank,))
        if not found.captured:
            raise ArtifactError(f"{source.collector} left nothing in {self.text}; `aorta-collectors verify` says why")
        return found


def parse(text: str, other: Path | None = None) -> Side:
    """Read PATH[:CELL[:TRIAL]][@RANK]. A text that is a path as a whole is that path.

    Args:
        other: The path that is meant where the text begins with : or @.

    Raises:
        click.UsageError: No such path.
    """
    rank, rest = None, text
    if not _exists(text) and (match := _RANK.fullmatch(text)) is not None:
        rest, rank = match.group(1), int(match.group(2))
    if other is not None and not _exists(rest) and (rest.startswith(":") or not rest):
        return Side(other, rest[1:], rank, f"{other}{text}")
    path, below = rest, ""
    while not _exists(path):
        path, colon, name = path.rpartition(":")
        if not colon:
            raise click.UsageError(
                f"{printable(text)}: there is no such path; a side is PATH[:CELL[:TRIAL]][@RANK], and the second one "
                "may leave out PATH where it is the same"
            )
        below = f"{name}:{below}" if below else name
    return Side(Path(path), below, rank, text)


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long, or a byte that no path can have
        return False
