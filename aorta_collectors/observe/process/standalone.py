"""A launch without a sweep: what its processes have in common, handed down through the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.linux import stat_fields
from aorta_collectors.observe.process.ranks import RANKS_OF_A_JOB, told

#: "run_id:pid:directory" of the launch to which a process belongs.
LAUNCH_VARIABLE = "AORTA_COLLECTORS_LAUNCH"
_TORCHRUN = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class StandaloneLaunch:
    """One call of `python -m aorta_collectors.COLLECTOR`, and every Python process below it.

    There is one launch, whichever collectors are armed in it. Whether a process writes for it, or for a sweep's trial,
    is a collector's own affair: it is told by the variable that holds the trial's run id.

    Attributes:
        run_id: Unique to the launch. Ranks that one torchrun, mpirun or srun has started on a machine share it.
        pid: The process that the user started.
        directory: Where that process was started. Relative paths are meant from there, in its children too.
    """

    run_id: str
    pid: int
    directory: str

    @classmethod
    def begin(cls, environ: MutableMapping[str, str], run_id_variable: str) -> None:
        """Make this process the first of a launch, unless it belongs to a sweep's trial or to another launch."""
        if not environ.get(run_id_variable) and cls.of(environ, run_id_variable) is None:
            environ[LAUNCH_VARIABLE] = f"{_new_run_id(environ)}:{os.getpid()}:{os.getcwd()}"

    @classmethod
    def of(cls, environ: Mapping[str, str], run_id_variable: str) -> StandaloneLaunch | None:
        """The launch to which a process with these variables belongs; None in a sweep."""
        run_id, _, rest = environ.get(LAUNCH_VARIABLE, "").partition(":")
        pid, _, directory = rest.partition(":")
        if environ.get(run_id_variable) or not (run_id and pid.isdecimal() and directory):
            return None
        return cls(run_id, int(pid), directory)

    @property
    def started_this_process(self) -> bool:
        """Whether the user's program, or another below it, has started this process."""
        return self.pid != os.getpid()


def _new_run_id(environ: Mapping[str, str]) -> str:
    # RANK says nothing: a person, or whoever made the container, may have set it for all that runs there.
    variable = _TORCHRUN if _TORCHRUN in environ else told(environ).variable
    if variable not in (_TORCHRUN, *RANKS_OF_A_JOB):
        return os.urandom(8).hex()
    # The ranks have nothing above them that is ours, and a launcher's own id need not differ from one run to the next.
    launcher = _launcher(variable)
    return f"{socket.gethostname()}-{launcher}-{_started_at(launcher)}"


def _launcher(variable: str) -> int:
    """The nearest process above that does not have this variable, as a shell between the two has."""
    pid = os.getppid()
    while pid > 1 and _has(pid, variable):
        try:
            pid = int(stat_fields(pid)[1])
        except (OSError, IndexError, ValueError):
            break
    return pid


def _has(pid: int, variable: str) -> bool:
    try:
        return f"\0{variable}=".encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _started_at(pid: int) -> str:
    """When a process began, in clock ticks since boot; empty where the system does not tell."""
    try:
        return stat_fields(pid)[19]
    except (OSError, IndexError):
        return ""
