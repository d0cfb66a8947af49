"""A file or a directory that is written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from aorta_collectors.errors import CollectorsError


@contextlib.contextmanager
def whole(target: Path, force: bool, files: str | None = None) -> Iterator[Path]:
    """A place to write to, which becomes `target` when the context is left without an error.

    Args:
        force: Whether an earlier one is replaced.
        files: Of a directory, the pattern that the names of its files have; one that holds others is not replaced. None
            where the target is a file.

    Raises:
        CollectorsError: The target exists or cannot be written.
    """
    _refuse(target, force, files)
    try:
        # Beside the target, so that renaming it is one step.
        with tempfile.TemporaryDirectory(prefix=".aorta-collectors-", dir=target.absolute().parent) as place:
            written = Path(place, "new")
            if files is not None:
                written.mkdir()
            yield written
            if files is not None and os.path.lexists(target):  # a directory takes the place of nothing but an empty one
                os.replace(target, Path(place, "old"))
            os.replace(written, target)
    except OSError as error:
        raise CollectorsError(f"cannot write {target}: {error.strerror}") from None


def _refuse(target: Path, force: bool, files: str | None) -> None:
    if not os.path.lexists(target):
        return
    if target.exists() and not target.is_file() and not target.is_dir():
        raise CollectorsError(f"{target} is a device or a pipe, which no file takes the place of; name a file")
    if not force:
        raise CollectorsError(f"{target} exists; --force replaces it")
    is_directory = target.is_dir() and not target.is_symlink()
    if is_directory and files is None:
        raise CollectorsError(f"{target} is a directory, and this format is one file; name a file")
    if is_directory and files is not None:
        others = (Path(folder, name) for folder, _, names in os.walk(target) for name in names)
        other = next((path for path in others if not fnmatch(path.name, files)), None)
        if other is not None:
            raise CollectorsError(f"{target} holds what no such export wrote ({other}); name another directory")
