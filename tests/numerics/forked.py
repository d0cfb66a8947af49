"""A fork of the test's process that does something, and is waited for with a limit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import torch

_PATIENCE_S = 60.0


def in_a_fork(function: Callable[[], object]) -> tuple[int, int]:
    """Run `function` in one; it is killed when it takes too long. Returns its process id and its exit status.

    The status is 0 where the function has returned, and 1 where it has raised.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # the threads that share its work are gone, and would be waited for
            function()
            status = 0
        except BaseException as error:
            os.write(2, f"in the fork: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return pid, os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"the fork has not ended within {_PATIENCE_S:.0f} s")
