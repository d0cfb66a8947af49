"""Which state of the code runs: the git work trees that it comes from, and the files that commands name."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.commands import script_of
from aorta_collectors.investigate.machine import differences
from aorta_collectors.launch.value import Launch

_GIT_TIMEOUT_S = 60
_GITS_OWN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
_BLOCK_BYTES = 1 << 20
# A file of data may be as large as a disk. Its size and time say whether it is another one.
_MOST_HASHED_BYTES = 64 << 20
_MOST_NAMES = 8
#: What a program imports or is built from. Notes and results may be edited while runs are made.
CODE = (".py", ".pyi", ".pyx", ".pxd", ".so", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hip", ".sh")
_OF_ENVIRONMENT = "the interpreter's environment"


def work_tree(path: Path) -> Path | None:
    """The git work tree in which a path lies; None if it lies in none, or there is no git."""
    directory = path if path.is_dir() else path.parent
    top = _git(directory, "rev-parse", "--show-toplevel")
    return Path(top.decode(errors="surrogateescape").rstrip("\n")) if top else None


def asked_for(paths: Iterable[Path]) -> list[Path]:
    """The work trees of --revision-of. Raises OptionsError for a path that lies in none."""
    found = []
    for path in paths:
        tree = work_tree(path.resolve())
        if tree is None:
            raise OptionsError("--revision-of", f"{path} does not lie in a git work tree")
        found.append(tree)
    return found


def trees_of(cwd: Path, files: Iterable[Path]) -> list[Path]:
    """The work trees of a workload: of its directory, and of each file that is no program of an environment."""
    places = (cwd, *(file.parent for file in files if not (file.parent.parent / "pyvenv.cfg").is_file()))
    return _trees(places)


def trees_of_environment() -> list[Path]:
    """The work trees in which the interpreter's environment and this package lie."""
    return _trees((Path(sys.prefix), Path(__file__).parent))


def _trees(places: Iterable[Path]) -> list[Path]:
    found = (work_tree(place) for place in dict.fromkeys(places))
    return list(dict.fromkeys(tree for tree in found if tree is not None))


def revision(tree: Path, *, of_environment: bool = False) -> dict[str, Any]:
    """Commit, branch and changes of tracked files; "error" where git cannot say.

    Args:
        of_environment: Whether no code of a workload lies there: then it is told as such, without names of files.
    """
    commit = _git(tree, "rev-parse", "HEAD")
    diff = _git(tree, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")
    names = _changed_since(tree, "HEAD")
    if commit is None or diff is None or names is None:
        return {"error": "git could not tell; the work tree is gone, has no commit, or belongs to another user"}
    branch = _git(tree, "symbolic-ref", "--quiet", "--short", "HEAD")
    found = {
        "commit": commit.decode().strip(),
        "branch": branch.decode(errors="replace").strip() if branch else None,
        "changed": bool(diff),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
    }
    if of_environment:
        return {"of": _OF_ENVIRONMENT, **found}
    return {**found, "changed_files": {name: fingerprint(tree / name) for name in names}}


def described(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A revision as a person reads it: names of changed files, and no digest where there is nothing to digest."""
    found = {name: value for name, value in recorded.items() if (name, value) != ("diff_sha256", None)}
    names = list(found.pop("changed_files", ()))
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        found["changed files"] = f"{', '.join(names[:_MOST_NAMES])}{more}"
    return found


def code_changes(tree: Path, recorded: Mapping[str, Any], without: Collection[str] = ()) -> list[str]:
    """The source files of a work tree that are not as they were when it was recorded, a line each.

    That something else was changed or committed there makes no difference to a program.

    Args:
        recorded: What `revision` has said then.
        without: Absolute paths of files that are looked at elsewhere.
    """
    if "of" in recorded:
        return []
    if "error" in recorded or "changed_files" not in recorded:
        now = revision(tree)
        return differences(recorded, {name: now.get(name) for name in (*recorded, "error")}, str(tree))
    names = _changed_since(tree, recorded["commit"])
    if names is None:
        return [f"{tree}: git could not tell what differs from commit {recorded['commit']}"]
    was, is_now = recorded["changed_files"], {name: fingerprint(tree / name) for name in names}
    return [
        f"{tree / name}: {was.get(name, 'as committed')} before, {is_now.get(name, 'as committed')} now"
        for name in sorted({*was, *is_now})
        if name.endswith(CODE) and was.get(name) != is_now.get(name) and str(tree / name) not in without
    ]


def _changed_since(tree: Path, commit: str) -> list[str] | None:
    """Names of tracked files that differ from a commit; None where git cannot say."""
    found = _git(tree, "diff", "--no-ext-diff", "--name-only", "--no-renames", "-z", commit)
    return None if found is None else [os.fsdecode(name) for name in found.split(b"\0") if name]


def files_of(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> list[Path]:
    """The files that a command names: its script or module, and every other word, or what follows its =."""
    candidates = [cwd / part for word in words[1:] for part in (word, word.partition("=")[2]) if part]
    script = script_of(Launch.of_this_process(words, environment, str(cwd)))
    found = [path for path in (cwd / words[0] if os.sep in words[0] else None, script, *candidates) if path is not None]
    return [path for path in dict.fromkeys(map(_normal, found)) if _is_file(path)]


def fingerprint(path: Path) -> str:
    """ "sha256:..." of a file's content, or its size and time where it is large; "gone" where it is."""
    try:
        status = path.stat()
        if status.st_size > _MOST_HASHED_BYTES:
            return f"{status.st_size} bytes, modified at {status.st_mtime_ns} ns"
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
        return f"sha256:{digest.hexdigest()}"
    except OSError as error:
        return f"gone ({error.strerror})"


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a word that no path can be: too long, or with a NUL
        return False


def _git(directory: Path, *words: str) -> bytes | None:
    # A hook of git's names its own repository. And of one that somebody may be writing to, nothing is locked.
    environment = {name: value for name, value in os.environ.items() if name not in _GITS_OWN}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *words],
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
