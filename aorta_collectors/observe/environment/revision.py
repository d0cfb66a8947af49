"""The commit that is checked out where a program lies, read from the files of git: no process is started for it."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?$")
# Of a reference that refers to another.
_MOST_STEPS = 5


def revision_of(directory: str | Path) -> str | None:
    """The commit of the work tree that a directory lies in; None without one.

    It is what HEAD names, also in a work tree of its own. Changes that are not committed do not show.
    """
    try:
        place = Path(directory).resolve()
        for above in (place, *place.parents):
            found = above / ".git"
            if found.exists():
                return _head(_git_directory(found))
    except (OSError, ValueError):
        pass
    return None


def _git_directory(found: Path) -> Path:
    """Of a further work tree, and of a submodule, .git is a file that says where it is."""
    if found.is_dir():
        return found
    return found.parent / found.read_text(encoding="utf-8").removeprefix("gitdir:").strip()


def _head(git: Path) -> str | None:
    common = git / "commondir"
    shared = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
    name = "HEAD"
    for _ in range(_MOST_STEPS):
        text = _reference(name, git, shared)
        if text is None or _COMMIT.match(text):
            return text
        name = text.removeprefix("ref:").strip()
    return None


def _reference(name: str, git: Path, shared: Path) -> str | None:
    for place in (git, shared):
        if (place / name).is_file():
            return (place / name).read_text(encoding="utf-8").strip()
    packed = shared / "packed-refs"
    if packed.is_file():
        for line in packed.read_text(encoding="utf-8").splitlines():
            commit, _, packed_name = line.partition(" ")
            if packed_name == name and _COMMIT.match(commit):
                return commit
    return None
