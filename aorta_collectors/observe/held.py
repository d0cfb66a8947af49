"""Descriptors that stay ours: a program that closes all of them, as daemons do, gives their numbers to other files.

To write to such a number would put evidence into a file of the program's, and to close it would close that file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Callable

# Far above what open() gives out, which is the lowest number that is free, and below what select() takes.
_ASIDE = 1000
_STDERR = 2


class Held:
    """An open file or directory, opened again where somebody else has closed it.

    Args:
        fd: Its descriptor, ours to close from now on.
        again: Opens it by its name once more, without creating anything.
    """

    def __init__(self, fd: int, again: Callable[[], int]) -> None:
        self._fd = _beside_streams(fd)
        self._again = again
        self._identity = _identity(self._fd)

    def fd(self) -> int:
        """The descriptor. Raises OSError where it was closed, and the name now belongs to another file or to none."""
        if self._is_ours(self._fd):
            return self._fd
        self._fd = -1
        fd = _beside_streams(self._again())
        if not self._is_ours(fd):
            os.close(fd)
            raise OSError(errno.ESTALE, "closed by the program, and replaced by another file since")
        self._fd = fd
        return fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1  # first of all, since closing can be interrupted
        if self._is_ours(fd):
            os.close(fd)

    def _is_ours(self, fd: int) -> bool:
        try:
            return fd >= 0 and _identity(fd) == self._identity
        except OSError:
            return False


def set_aside(fd: int) -> int:
    """The same file under a number that no later file of the program will get. `fd` is closed."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = _ASIDE if most == resource.RLIM_INFINITY or most > _ASIDE else max(most // 2, fd)
    with contextlib.suppress(OSError):  # as few are left: the number that it has will do
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        os.close(fd)
        return moved
    return fd


def _beside_streams(fd: int) -> int:
    """The same file under a number above those of stdin, stdout and stderr. `fd` is closed if it is one of them.

    A program may have closed those, and what is said on stderr all the same must not end up in evidence.
    """
    if fd > _STDERR:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
