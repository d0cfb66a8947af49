"""A sweep as a child process: it ends when its parent does, and takes what it has started with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable

_SET_PARENT_DEATH_SIGNAL = 1
_GRACE_S = 15


def ends_with_parent() -> Callable[[], None]:
    """What a process calls to be interrupted when its parent dies, as by the out-of-memory killer.

    An interrupt, since the host ends the command that it runs on that one alone.
    """
    prctl = ctypes.CDLL(None).prctl

    def call() -> None:
        # A shell starts what runs in the background with interrupts ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGINT)

    return call


def end(sweep: subprocess.Popen[bytes]) -> None:
    """End a sweep that leads its own session, by an interrupt or else by force."""
    # Further interrupts, of the terminal and of submitit, must not keep it from ending what it started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            sweep.wait(_GRACE_S)
            return
