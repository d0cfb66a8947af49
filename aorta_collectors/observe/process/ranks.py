"""Which rank a process is, and which attempt of its launcher, as the environment says. Needs no torch.

A launcher tells its processes their rank in variables of its own. The first row of the table that is there holds:

| launcher | rank | world size |
|---|---|---|
| torchrun, accelerate, deepspeed, and most scripts | RANK | WORLD_SIZE |
| mpirun of Open MPI | OMPI_COMM_WORLD_RANK | OMPI_COMM_WORLD_SIZE |
| mpiexec of MPICH and of Intel MPI | PMI_RANK | PMI_SIZE |
| srun | SLURM_PROCID | SLURM_STEP_NUM_TASKS |
| prterun | PMIX_RANK | not said; at least the rank and one |
| launchers that only say which process of a machine it is | LOCAL_RANK | WORLD_SIZE |

A default process group knows better than all of them (`Place`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

#: "PID:variable=rank/size": what process PID was told, when it was armed. Its children inherit what it was told.
TOLD_VARIABLE = "AORTA_COLLECTORS_RANK"

#: Variables that no person sets: whoever has one was started by mpirun, mpiexec, srun or prterun.
RANKS_OF_A_JOB = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "PMIX_RANK")

_RANK_AND_SIZE = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("PMIX_RANK", None),
    ("LOCAL_RANK", "WORLD_SIZE"),
)
# Steps above are Slurm's own: the batch script, an interactive allocation, what runs beside a job. No rank runs there.
_LAST_STEP = 0xFFFFFFEF


class Told(NamedTuple):
    """What a launcher says.

    Attributes:
        variable: Which variable says it; empty where none does, and the process is rank 0 of 1.
    """

    variable: str
    rank: int
    world_size: int

    def __str__(self) -> str:
        return f"{self.variable}={self.rank}/{self.world_size}"


def told(environ: Mapping[str, str]) -> Told:
    """The rank and world size of a process with these variables."""
    for variable, size_variable in _RANK_AND_SIZE:
        rank = _whole(environ, variable)
        if rank is None or (variable == "SLURM_PROCID" and not _is_in_step(environ)):
            continue
        size = _whole(environ, size_variable) if size_variable is not None else rank + 1
        return Told(variable, rank, max(1, size or 1))
    return Told("", 0, 1)


def note_rank(environ: MutableMapping[str, str]) -> None:
    """Let the children of this process know which rank is not theirs but this process's."""
    mine = told(environ)
    if mine.world_size > 1 and environ.get(TOLD_VARIABLE, "").partition(":")[2] != str(mine):
        environ[TOLD_VARIABLE] = f"{os.getpid()}:{mine}"


def is_one_of_many(environ: Mapping[str, str]) -> bool:
    """Whether a launcher has made this process a rank beside others. A child of a rank inherits the variables alone."""
    mine = told(environ)
    pid, _, text = environ.get(TOLD_VARIABLE, "").partition(":")
    return mine.world_size > 1 and (text != str(mine) or pid == str(os.getpid()))


def restart_of(environ: Mapping[str, str]) -> int:
    """How often torchrun had started its workers anew when it started this one."""
    return _whole(environ, "TORCHELASTIC_RESTART_COUNT") or 0


def launcher_of(environ: Mapping[str, str]) -> str | None:
    """What tells the torchrun of this process on this machine from any other; None where there is none.

    A worker's error file lies in a directory that each torchrun makes for itself, and a shell between the two does not
    change that. Its own run id is the same, "none", in all of them.
    """
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    attempt = Path(environ.get("TORCHELASTIC_ERROR_FILE", "")).parent.parent
    place = str(attempt.parent) if attempt.name.startswith("attempt_") else str(os.getppid())
    return f"{socket.gethostname()}:{place}"


def _is_in_step(environ: Mapping[str, str]) -> bool:
    """Whether srun has started the process: a batch script has a SLURM_PROCID as well, and is no rank."""
    step = _whole(environ, "SLURM_STEP_ID")
    return step is not None and step <= _LAST_STEP


def _whole(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None
