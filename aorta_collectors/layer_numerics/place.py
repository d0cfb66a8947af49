"""Where a process writes, and under which rank. In a sweep, no two processes of a trial write to one file."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.environment import whole_number


@dataclass(frozen=True)
class Place:
    """A process's files.

    Attributes:
        rank, world_size: From the default process group if there is one, else from RANK (or LOCAL_RANK) and WORLD_SIZE.
        warning: Something the user should know about the choice; empty otherwise.
    """

    records: Path
    summary: Path
    rank: int
    world_size: int
    warning: str = ""

    @classmethod
    def claim(cls, directory: Path, run_id: str | None) -> Place:
        rank, world_size = _rank_and_world_size()
        directory, warning = _writable(directory, run_id)
        stem = f"rank{rank}" if run_id is None else _claimed_stem(directory, rank)
        return cls(directory / f"layers_{stem}.jsonl", directory / f"summary_{stem}.json", rank, world_size, warning)


def _rank_and_world_size() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return whole_number("RANK", whole_number("LOCAL_RANK", 0)), max(1, whole_number("WORLD_SIZE", 1))


def _writable(directory: Path, run_id: str | None) -> tuple[Path, str]:
    """The directory, made if need be. A standalone run falls back to a temporary one rather than losing its records."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory, ""
        reason = "not writable"
    except OSError as error:
        reason = error.strerror or str(error)
    if run_id is not None:
        return directory, f"cannot write to NANLOG_DIR={directory} ({reason}); nothing will be recorded"
    fallback = Path(tempfile.mkdtemp(prefix="nan_logger_out_"))
    return fallback, f"cannot write to NANLOG_DIR={directory} ({reason}); writing to {fallback}"


def _claimed_stem(directory: Path, rank: int) -> str:
    """The stem of file names that no other process of the trial has: by creating the records' file, if it is new.

    A shell script may start two programs of the same rank, at the same moment even.
    """
    stem = f"rank{rank}"
    try:
        os.close(os.open(directory / f"layers_{stem}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        stem = f"rank{rank}_p{os.getpid()}"
    except OSError:
        pass  # nothing can be written there at all; the writer says so
    return stem
