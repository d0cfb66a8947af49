"""Where a process writes, and under which rank. No two processes of a trial, or of a launch, write to one file."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.environment import whole_number
from aorta_collectors.layer_numerics.standalone import StandaloneLaunch


@dataclass(frozen=True)
class Place:
    """A process's files.

    Attributes:
        rank, world_size: From the default process group if there is one, else from RANK (or LOCAL_RANK) and WORLD_SIZE.
        run_id: The sweep's trial or the standalone launch; None where a process was armed by hand.
        warning: Something the user should know about the choice; empty otherwise.
    """

    records: Path
    summary: Path
    rank: int
    world_size: int
    run_id: str | None = None
    warning: str = ""
    _claim: Path | None = None
    _claimed_at: float = 0.0

    @property
    def stem(self) -> str:
        """What the names of all files of this process end with: rank<N>, or rank<N>_p<pid>."""
        return self.summary.stem.removeprefix("summary_")

    @classmethod
    def claim(cls, directory: Path, trial: str | None, launch: StandaloneLaunch | None = None) -> Place:
        """Choose files that no other process of the trial, or of the launch, has chosen or will choose.

        Args:
            trial: Run id of the sweep's trial; None alone.
            launch: The standalone launch, which replaces files that other launches have left under the same names.
        """
        rank, world_size = _rank_and_world_size()
        directory, warning = _writable(directory, alone=trial is None)
        stem, claim, claimed_at = f"rank{rank}", None, 0.0
        if trial is not None:
            # The directory was empty when the trial began.
            if _create(directory / f"layers_{stem}.jsonl") is None:
                stem = _second(stem)
        elif launch is not None:
            claim = directory / f".{stem}.{launch.run_id}.claim"
            made = _create(claim)
            if made is None:
                stem, claim = _second(stem), None
            elif _run_id_of(directory / f"summary_{stem}.json") == launch.run_id:
                # The first has written its summary and given its claim back, or ended long ago.
                _remove(claim)
                stem, claim = _second(stem), None
            else:
                claimed_at = made
        run_id = trial if launch is None or trial is not None else launch.run_id
        records, summary = directory / f"layers_{stem}.jsonl", directory / f"summary_{stem}.json"
        return cls(records, summary, rank, world_size, run_id, warning, claim, claimed_at)

    def settle(self) -> None:
        """To be called when the summary, with its run id, is there: it tells from then on whose the files are."""
        if self._claim is not None:
            _remove(self._claim)

    def left_over(self) -> list[str]:
        """Names of summaries beside this one that an earlier launch wrote: for rank 0 of a standalone launch to tell.

        A launch of several machines has several run ids, so only what was last written before this began counts.
        """
        if self._claim is None or self.rank != 0:
            return []
        names = []
        for path in sorted(self.summary.parent.glob("summary_rank*.json")):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < self._claimed_at and _run_id_of(path) != self.run_id:
                    names.append(path.name)
        return names


def is_helper(directory: Path, trial: str | None, launch: StandaloneLaunch | None) -> bool:
    """Whether a process that called no model has nothing to say about that.

    In a sweep's trial, where another process left a summary. Alone, where it is a child of the launched program, such
    as a data loader's worker, or where one of its own children left a summary.
    """
    if launch is not None and trial is None and launch.started_this_process:
        return True
    run_id = trial or (launch.run_id if launch is not None else None)
    summaries = directory.glob("summary_rank*.json")
    return run_id is not None and any(trial is not None or _run_id_of(path) == run_id for path in summaries)


def _rank_and_world_size() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return whole_number("RANK", whole_number("LOCAL_RANK", 0)), max(1, whole_number("WORLD_SIZE", 1))


def _writable(directory: Path, alone: bool) -> tuple[Path, str]:
    """The directory, made if need be. A standalone run falls back to a temporary one rather than losing its records."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory, ""
        reason = "not writable"
    except OSError as error:
        reason = error.strerror or str(error)
    if not alone:
        return directory, f"cannot write to NANLOG_DIR={directory} ({reason}); nothing will be recorded"
    fallback = Path(tempfile.mkdtemp(prefix="nan_logger_out_"))
    return fallback, f"cannot write to NANLOG_DIR={directory} ({reason}); writing to {fallback}"


def _create(path: Path) -> float | None:
    """Create a file that must be new, and return when that was; None if it exists.

    Two programs of the same rank may come here at the same moment. Where nothing can be written at all, the writer
    says so later.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return None
    except OSError:
        return 0.0
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # the program may have removed the directory
        path.unlink()


def _second(stem: str) -> str:
    return f"{stem}_p{os.getpid()}"


def _run_id_of(summary: Path) -> str | None:
    try:
        content = json.loads(summary.read_bytes())
    except (OSError, ValueError):
        return None
    run_id = content.get("run_id") if isinstance(content, dict) else None
    return run_id if isinstance(run_id, str) else None
