"""Digests of what lies below a directory, by which it is seen later whether anything was changed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, Kind


def sha256_below(top: Path, without: Collection[str] = (), unreadable: list[str] | None = None) -> dict[str, str]:
    """Hex digests of the files below a directory, by path below it. Links are not followed.

    Args:
        without: Paths that are left out.
        unreadable: Takes why a file or directory could not be read, in the place of an error.

    Raises:
        ArtifactError: One cannot be read.
    """
    found: dict[str, str] = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        with _noted(unreadable), Anchor(top).open(path) as directory:
            for name, kind in directory.entries():
                inside = (path / name).relative_to(top).as_posix()
                if kind is Kind.DIRECTORY:
                    waiting.append(path / name)
                elif kind is Kind.FILE and inside not in without:
                    with _noted(unreadable):
                        found[inside] = directory.sha256(name)
    return dict(sorted(found.items()))


@contextlib.contextmanager
def _noted(unreadable: list[str] | None) -> Iterator[None]:
    try:
        yield
    except ArtifactError as error:
        if unreadable is None:
            raise
        unreadable.append(str(error))
