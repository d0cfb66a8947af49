"""Reading a file of JSON lines on from where the last look ended, while somebody still writes it."""

from __future__ import annotations

import os

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import ArtifactDirectory

# What verification takes for the longest line that can be one.
_LINE_BYTES = 1 << 20


class Tail:
    """One file of a directory, opened anew at each look: over a network file system only that shows what is new.

    Args:
        name: Of the file.

    Attributes:
        passed_over_bytes: What was never read, since there was more than a look may take in.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.passed_over_bytes = 0
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""

    def lines(self, directory: ArtifactDirectory, most_bytes: int) -> list[bytes]:
        """The whole lines that were added since the last look, without their ends; [] where there is no file.

        Of more than `most_bytes`, the last so many. A file that took the place of the one read so far is read as a new
        one; one that was cut is read on from its new end. What is too long for a line is handed on in pieces.
        """
        try:
            with directory.opened(self._name) as fd:
                return self._read(fd, most_bytes)
        except (ArtifactError, OSError):
            return []

    def _read(self, fd: int, most_bytes: int) -> list[bytes]:
        status = os.fstat(fd)
        file = (status.st_dev, status.st_ino)
        if file != self._file or status.st_size < self._offset:
            self._offset, self._rest = 0 if file != self._file else status.st_size, b""
            self._file = file
        left_out = status.st_size - most_bytes - self._offset
        if left_out > 0:
            # With the byte before, which tells whether a line begins after it.
            content = os.pread(fd, most_bytes + 1, self._offset + left_out - 1).partition(b"\n")[2]
            self.passed_over_bytes += left_out + len(self._rest)
            self._rest = b""
        else:
            content = os.pread(fd, status.st_size - self._offset, self._offset)
        self._offset = status.st_size
        *whole, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            whole.append(self._rest)
            self._rest = b""
        return whole
