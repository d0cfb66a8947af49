"""A launch without a sweep: what its processes have in common, handed down through the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.layer_numerics.names import RUN_ID_VARIABLE

#: "run_id:pid:directory" of the launch to which a process belongs.
LAUNCH_VARIABLE = "AORTA_COLLECTORS_LAUNCH"


@dataclass(frozen=True)
class StandaloneLaunch:
    """One call of `python -m aorta_collectors.layer_numerics`, and every Python process below it.

    Attributes:
        run_id: Unique to the launch. Ranks that one torchrun has started share it.
        pid: The process that the user started.
        directory: Where that process was started. Relative paths are meant from there, in its children too.
    """

    run_id: str
    pid: int
    directory: str

    @classmethod
    def begin(cls, environ: MutableMapping[str, str]) -> None:
        """Make this process the first of a launch, unless it belongs to a sweep's trial or to another launch."""
        if not environ.get(RUN_ID_VARIABLE) and cls.of(environ) is None:
            environ[LAUNCH_VARIABLE] = f"{_new_run_id(environ)}:{os.getpid()}:{os.getcwd()}"

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> StandaloneLaunch | None:
        """The launch to which a process with these variables belongs; None in a sweep."""
        run_id, _, rest = environ.get(LAUNCH_VARIABLE, "").partition(":")
        pid, _, directory = rest.partition(":")
        if environ.get(RUN_ID_VARIABLE) or not (run_id and pid.isdecimal() and directory):
            return None
        return cls(run_id, int(pid), directory)

    @property
    def started_this_process(self) -> bool:
        """Whether the user's program, or another below it, has started this process."""
        return self.pid != os.getpid()


def _new_run_id(environ: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" not in environ:
        return os.urandom(8).hex()
    # The ranks have nothing above them that is ours, and torchrun's own id need not differ from one run to the next.
    launcher = os.getppid()
    return f"{socket.gethostname()}-{launcher}-{_started_at(launcher)}"


def _started_at(pid: int) -> str:
    """When a process began, in clock ticks since boot; empty where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The command's name comes second, in parentheses, and may have spaces and parentheses in it.
    return text.rpartition(")")[2].split()[19]
