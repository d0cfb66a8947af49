"""Processes of a run that outlive its sweep: found by the variable that names the run to them, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

#: Names a run's directory to all that it starts.
RUN_VARIABLE = "INVESTIGATION_RUN"
_GRACE_S = 10.0
_POLL_S = 0.1


def processes_of(run: Path) -> list[int]:
    """Processes on this machine that were started by a run, by their environment. Those of other users are not seen."""
    wanted = f"{RUN_VARIABLE}={run}".encode(errors="surrogateescape")
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            # One that has ended since, or is another user's; of one that is ending, nothing is left to read.
            with contextlib.suppress(OSError):
                if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def gone_within(run: Path, seconds: float) -> bool:
    """Wait until no process of a run is alive. Returns whether there is none."""
    deadline = time.monotonic() + seconds
    while processes_of(run):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def end_processes_of(run: Path) -> None:
    """End what a run has left behind, by a request and then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes_of(run):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        if gone_within(run, _GRACE_S):
            return
