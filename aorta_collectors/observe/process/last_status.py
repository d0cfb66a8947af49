"""The last word on a process's exit status, after all of its exit handlers.

Those cannot change the status, and one that left the process would keep the others from running, such as those that
flush logs and remove temporary files. But they let go of everything that their table alone holds when all have run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable


class LastStatus:
    """Held by the table of exit handlers, so that it goes with the last of them.

    A program that clears the table keeps its own status.

    Args:
        status: Asked then; None for the status that the program has given itself.
    """

    def __init__(self, status: Callable[[], int | None]) -> None:
        self._status = status
        self._pid = os.getpid()
        self._at_the_end = False

    @classmethod
    def decide(cls, status: Callable[[], int | None]) -> None:
        """Have `status` asked when this process, and not a fork of it, ends."""
        atexit.register(cls(status))

    def __call__(self) -> None:
        self._at_the_end = True

    def __del__(self) -> None:
        if not self._at_the_end or os.getpid() != self._pid:
            return
        status = self._status()
        if status is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have closed or replaced it
                stream.flush()
        os._exit(status)
