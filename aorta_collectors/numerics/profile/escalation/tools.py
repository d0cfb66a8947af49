"""Running a tool that watches a process, from the helper, for a while that is bounded."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, cast

from aorta_collectors.numerics.profile.escalation.sources import Unavailable

_READY_S = 1.5
_DONE_S = 1.5
_PR_SET_PDEATHSIG = 1


def file_in_memory(name: str) -> IO[bytes]:
    """A file that is gone with those who have it open. Nothing has to read it while it is written, unlike a pipe."""
    return cast(IO[bytes], os.fdopen(os.memfd_create(name), "w+b"))


class Tool:
    """One run of a tool that looks until it gets SIGINT, and then tells what it has seen.

    Args:
        command: Its name and arguments.
        files: Numbers of open files that it gets.

    Raises:
        Unavailable: It is not installed, or cannot be started.
    """

    def __init__(self, command: Sequence[str], files: Sequence[int] = ()) -> None:
        self.name = command[0]
        found = shutil.which(self.name)
        if found is None:
            raise Unavailable(f"{self.name} is not installed.")
        libc = ctypes.CDLL(None)

        def begin() -> None:
            # Nobody would end it once the helper is gone. What it traces goes on then.
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the helper ignores

        self._output = file_in_memory(self.name)
        try:
            self._process = subprocess.Popen(
                [found, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=files,
                preexec_fn=begin,
            )
        except OSError as error:
            self._output.close()
            raise Unavailable(f"{self.name} could not be started: {error}.") from error

    def await_ready(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it looks.

        Raises:
            Unavailable: It has ended, or does not come to it in time.
        """
        deadline = time.monotonic() + _READY_S
        while not is_ready():
            if self._process.poll() is not None:
                raise Unavailable(f"{self.name} could not look at the process: {self._complaint()}.")
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name} was not ready within {_READY_S} s.")
            time.sleep(0.0005)

    def text(self) -> str:
        """What it has written so far."""
        return os.pread(self._output.fileno(), 1 << 24, 0).decode("utf-8", "replace")

    def ask_to_end(self) -> None:
        """Have it stop looking; `finished` waits for that."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def finished(self) -> str:
        """What it has to say at its end.

        Raises:
            Unavailable: It does not end in time.
        """
        try:
            self._process.wait(_DONE_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{self.name} did not end within {_DONE_S} s.") from None
        return self.text()

    def drop(self) -> None:
        """End it, at once."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _complaint(self) -> str:
        return " ".join(self.text().split())[:240].rstrip(".") or f"exit status {self._process.returncode}"
