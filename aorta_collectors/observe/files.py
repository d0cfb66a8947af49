"""The two files a process leaves: records, one JSON line each, and a summary that is always whole.

Writing never raises: an error is kept in `error`, and the program that is being observed goes on. A reader at any
moment, also after a SIGKILL, finds whole lines and a whole summary whose step count is at most one step behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_STEP_WIDTH = 20


class RecordFile:
    """Appends JSON lines. A line that did not fit on the disk is taken back, so that lines are whole or absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.error: str | None = None
        self._size = 0
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.error = f"{path}: {error.strerror}"

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records with one system call. After the first error nothing more is written."""
        if self.error is not None or not records:
            return
        lines = "".join(json.dumps(record, allow_nan=False, separators=(", ", ": ")) + "\n" for record in records)
        block = lines.encode()
        try:
            done = 0
            while done < len(block):
                done += os.write(self._fd, block[done:])
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                pass  # nothing better can be done; a torn last line is what verification reports then
            return
        self._size += len(block)
        self.written += len(records)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SummaryFile:
    """A JSON object, replaced atomically; only its step count is updated in place.

    The count is written with a fixed width (JSON allows spaces before a number), so that each step costs one small
    pwrite and a reader never sees half of it.
    """

    def __init__(self, path: Path, step_key: str) -> None:
        self.path = path
        self.error: str | None = None
        self._step_key = step_key
        self._offset = 0
        self._fd = -1

    def write(self, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, default=str)
        marker = f'"{self._step_key}": '
        start = text.index(marker) + len(marker)
        end = start
        while text[end].isdigit():
            end += 1
        text = text[:start] + text[start:end].rjust(_STEP_WIDTH) + text[end:] + "\n"
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                block = text.encode()
                while block:
                    block = block[os.write(fd, block) :]
                os.replace(temporary, self.path)
            except OSError:
                os.close(fd)
                try:
                    os.unlink(temporary)
                except OSError:
                    pass  # the directory itself may be gone
                raise
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
            return
        self.close()
        self._fd = fd
        self._offset = len(text[:start].encode())
        self.error = None

    def beat(self, step: int) -> None:
        """Record that `step` has begun."""
        if self._fd >= 0:
            try:
                os.pwrite(self._fd, str(step).rjust(_STEP_WIDTH).encode(), self._offset)
            except OSError as error:
                self.error = f"{self.path}: {error.strerror}"

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
