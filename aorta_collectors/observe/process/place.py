"""Where a process writes, and under which rank. No two processes of a trial, or of a launch, write to one file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.ranks import is_one_of_many, launcher_of, restart_of, told
from aorta_collectors.observe.process.standalone import StandaloneLaunch

# A number above all process ids, so that names made with it are nobody else's.
_ABOVE_PIDS = 10_000_000
#: Inode and time of the last change of a file, in nanoseconds: the same as long as nobody has written to it.
_State = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """A process's files.

    Attributes:
        rank, world_size: From the default process group if there is one, else as the launcher says (ranks.py).
        run_id: The sweep's trial or the standalone launch; None where a process was armed by hand.
        warning: Something the user should know about the choice; empty otherwise.
        launcher: The torchrun that has started the process, and
        restart: how often it had started its workers anew before.
    """

    records: Path
    summary: Path
    rank: int
    world_size: int
    run_id: str | None = None
    warning: str = ""
    launcher: str | None = None
    restart: int = 0
    _claim: Path | None = None
    _found: Mapping[str, _State] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """What the names of all files of this process end with: rank<N>, or rank<N>_p<pid>."""
        return self.summary.stem.removeprefix("summary_")

    def fields(self) -> dict[str, Any]:
        """What the summary says of it."""
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "restart": self.restart,
            "launcher": self.launcher,
        }

    @classmethod
    def claim(
        cls, names: ProcessNames, directory: Path, trial: str | None, launch: StandaloneLaunch | None = None
    ) -> Place:
        """Choose files that no other process of the trial, or of the launch, has chosen or will choose.

        Args:
            names: The collector's; its files alone are meant.
            trial: Run id of the sweep's trial; None alone.
            launch: The standalone launch, which replaces files that other launches have left under the same names.
        """
        rank, world_size = _rank_and_world_size()
        directory, warning = _writable(names, directory, alone=trial is None)
        stem, claim, found = f"rank{rank}", None, dict[str, _State]()
        if trial is not None:
            # The directory was empty when the trial began.
            if not _create(_records(names, directory, stem)):
                stem = _second(names, directory, stem)
        elif launch is not None:
            claim = directory / f".{stem}.{launch.run_id}.claim"
            if not _create(claim):
                stem, claim = _second(names, directory, stem), None
            elif _run_id_of(directory / f"summary_{stem}.json") == launch.run_id:
                # The first has written its summary and given its claim back, or ended long ago.
                _remove(claim)
                stem, claim = _second(names, directory, stem), None
            else:
                found = _summaries(directory)
        run_id = trial if launch is None or trial is not None else launch.run_id
        records, summary = _records(names, directory, stem), directory / f"summary_{stem}.json"
        launcher, restart = launcher_of(os.environ), restart_of(os.environ)
        return cls(records, summary, rank, world_size, run_id, warning, launcher, restart, claim, found)

    def settle(self) -> None:
        """To be called when the summary, with its run id, is there: it tells from then on whose the files are."""
        if self._claim is not None:
            _remove(self._claim)

    def left_over(self) -> list[str]:
        """Names of summaries beside this one that an earlier launch wrote: for rank 0 of a standalone launch to tell.

        A launch of several machines has several run ids, so only what nobody has written to since this began counts.
        """
        if self._claim is None or self.rank != 0:
            return []
        directory = self.summary.parent
        untouched = sorted(self._found.items() & _summaries(directory).items())
        return [name for name, _ in untouched if _run_id_of(directory / name) != self.run_id]


def is_helper(directory: Path, trial: str | None, launch: StandaloneLaunch | None) -> bool:
    """Whether a process that called no model has nothing to say about that.

    A rank beside others is none, since the others' evidence is not complete without a word from it. Any other process
    is one in a sweep's trial where another process left a summary, and alone where it is a child of the launched
    program, such as a compiler's worker, or where one of its own children left a summary.
    """
    if _is_loader_worker():
        return True
    group = _group()
    if is_one_of_many(os.environ) or (group is not None and group[1] > 1):
        return False
    if launch is not None and trial is None and launch.started_this_process:
        return True
    run_id = trial or (launch.run_id if launch is not None else None)
    summaries = directory.glob("summary_rank*.json")
    return run_id is not None and any(trial is not None or _run_id_of(path) == run_id for path in summaries)


def _is_loader_worker() -> bool:
    """A program may set RANK itself, and its data loaders' workers inherit that."""
    workers = sys.modules.get("torch.utils.data._utils.worker")
    return workers is not None and workers.get_worker_info() is not None


def _rank_and_world_size() -> tuple[int, int]:
    return _group() or told(os.environ)[1:]


def _group() -> tuple[int, int] | None:
    """Rank and size of the default process group while there is one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return None


def _records(names: ProcessNames, directory: Path, stem: str) -> Path:
    return directory / f"{names.records}_{stem}.jsonl"


def _writable(names: ProcessNames, directory: Path, alone: bool) -> tuple[Path, str]:
    """The directory, made if need be. A standalone run falls back to a temporary one rather than losing its records."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory, ""
        reason = "not writable"
    except OSError as error:
        reason = error.strerror or str(error)
    failure = f"cannot write to {names.directory_variable}={directory} ({reason})"
    if not alone:
        return directory, f"{failure}; nothing will be recorded"
    fallback = Path(tempfile.mkdtemp(prefix=f"{names.default_directory}_"))
    return fallback, f"{failure}; writing to {fallback}"


def _summaries(directory: Path) -> dict[str, _State]:
    found = {}
    for path in directory.glob("summary_rank*.json"):
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path.name] = (status.st_ino, status.st_mtime_ns)
    return found


def _create(path: Path) -> bool:
    """Create a file that must be new; False if it exists.

    Two programs of the same rank may come here at the same moment. Where nothing can be written at all, the writer
    says so later.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    except OSError:
        return True
    os.close(descriptor)
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # the program may have removed the directory
        path.unlink()


def _second(names: ProcessNames, directory: Path, stem: str) -> str:
    """A name for a further process of a rank. Containers that share the directory can have processes of one id."""
    name = f"{stem}_p{os.getpid()}"
    for count in range(1, 1000):
        if _create(_records(names, directory, name)):
            break
        name = f"{stem}_p{os.getpid() + count * _ABOVE_PIDS}"
    return name


def _run_id_of(summary: Path) -> str | None:
    try:
        content = json.loads(summary.read_bytes())
    except (OSError, ValueError):
        return None
    run_id = content.get("run_id") if isinstance(content, dict) else None
    return run_id if isinstance(run_id, str) else None
