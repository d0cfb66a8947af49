"""The two files a process leaves: records, one JSON line each, and a summary that is always whole.

Writing never raises: an error is kept in `error`, and the program that is being observed goes on. A reader at any
moment, also after a SIGKILL, finds whole lines and a whole summary whose step count is at most one step behind.

Both files stay in the directory in which they were begun, even if another one has its name by now: a program that
outlives its trial must not spoil the evidence of the next.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.observe.held import Held

_STEP_WIDTH = 20
_PATIENCE_S = 1.0


class RecordFile:
    """Appends JSON lines. A line that did not fit on the disk is taken back, so that lines are whole or absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.error: str | None = None
        self._size = 0
        # Models may be called in several threads. The program can come back into here in a signal handler of its.
        self._lock = threading.RLock()
        self._file: Held | None = None
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            self._file = Held(fd, self._open_again)
        except OSError as error:
            self.error = f"{path}: {error.strerror}"

    def append(self, lines: Sequence[str]) -> None:
        """Write lines, without their ends, with one system call. After the first error nothing more is written."""
        if self.error is not None or self._file is None or not lines:
            return
        block = ("\n".join(lines) + "\n").encode()
        with self._lock:
            try:
                fd, done = self._file.fd(), 0
                while done < len(block):
                    done += os.write(fd, block[done:])
                self._size += len(block)
                self.written += len(lines)
            except OSError as error:
                self.error = f"{self.path}: {error.strerror}"
                self._take_back()
            except BaseException:  # KeyboardInterrupt, while the program is in here
                self._take_back()
                raise

    def _take_back(self) -> None:
        """Drop what was written of a block that is not whole."""
        assert self._file is not None
        try:
            fd = self._file.fd()
            os.ftruncate(fd, self._size)
            os.lseek(fd, self._size, os.SEEK_SET)
        except OSError:
            pass  # nothing better can be done; a torn last line is what verification reports then

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open_again(self) -> int:
        fd = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.lseek(fd, self._size, os.SEEK_SET)
        return fd


class SummaryFile:
    """A JSON object, replaced atomically; its step count, and a few short values, can be updated in place.

    Those have a fixed width (JSON allows spaces around a value), so that each step costs one small pwrite and a reader
    never sees half of it. Where the file cannot be replaced, since the disk is full or the directory may no longer be
    written, they are brought up to date all the same.

    Args:
        step_key: The step count.
        error_key: What holds why writing failed; null in `write`'s content unless something else has.
        widths: Further values to update in place, and the characters that each may take. Strings or null.
    """

    def __init__(
        self, path: Path, step_key: str, error_key: str = "write_error", widths: Mapping[str, int] | None = None
    ) -> None:
        self.path = path
        self.error: str | None = None
        self._step_key = step_key
        self._error_key = error_key
        self._widths = {**(widths or {}), step_key: _STEP_WIDTH}
        self._slots: dict[str, tuple[int, int]] = {}
        self._file: Held | None = None
        self._directory: Held | None = None
        self._lock = threading.RLock()  # as above
        self._begun = self._under_way = 0

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the file. What cannot be written is kept in `error`, and in the old file where there is one."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return
        try:
            self._replace(content)
            self.error = None
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
            self._update({**content, self._error_key: content.get(self._error_key) or self.error})
        finally:
            self._lock.release()

    def beat(self, step: int) -> None:
        """Record that `step` has begun."""
        with self._lock:
            if self._file is not None:
                start, _ = self._slots[self._step_key]
                try:
                    os.pwrite(self._file.fd(), str(step).rjust(_STEP_WIDTH).encode(), start)
                except OSError as error:
                    self.error = f"{self.path}: {error.strerror}"

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, None
            directory, self._directory = self._directory, None
            for held in (file, directory):
                if held is not None:
                    held.close()

    def _replace(self, content: Mapping[str, Any]) -> None:
        self._begun += 1
        mine, nested = self._begun, f".{self._under_way}" if self._under_way else ""
        self._under_way += 1
        try:
            self._write_beside(content, f".{self.path.name}.{os.getpid()}{nested}.tmp", lambda: self._begun == mine)
        finally:
            self._under_way -= 1

    def _write_beside(self, content: Mapping[str, Any], temporary: str, is_newest: Callable[[], bool]) -> None:
        """Write another file and give it the name, unless a signal handler has written a newer one meanwhile."""
        text, slots = self._laid_out(content)
        if self._directory is None:
            self._directory = Held(self._open_directory(), self._open_directory)
        directory, name = self._directory, self.path.name
        place = directory.fd()
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644, dir_fd=place)
        try:
            block = text.encode()
            while block:
                block = block[os.write(fd, block) :]
            if not is_newest():
                os.close(fd)
                os.unlink(temporary, dir_fd=place)
                return
            os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            os.close(fd)
            try:
                os.unlink(temporary, dir_fd=place)
            except OSError:
                pass  # the directory itself may be gone
            raise
        held = Held(fd, lambda: os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory.fd()))
        if not is_newest():
            held.close()
            return
        before, self._slots, self._file = self._file, slots, held
        if before is not None:
            before.close()

    def _open_directory(self) -> int:
        return os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _laid_out(self, content: Mapping[str, Any]) -> tuple[str, dict[str, tuple[int, int]]]:
        """The text, all ASCII, and for each key where in it a value of which width may be put."""
        text = json.dumps(content, indent=2, default=str) + "\n"
        values = {key: json.dumps(content[key]) for key in self._widths if key in content}
        widths = {key: max(self._widths[key], len(value)) for key, value in values.items()}
        for key, value in values.items():
            start = _start_of(key, text)
            text = text[:start] + value.rjust(widths[key]) + text[start + len(value) :]
        return text, {key: (_start_of(key, text), width) for key, width in widths.items()}

    def _update(self, content: Mapping[str, Any]) -> None:
        """Bring the old file's short values up to date."""
        if self._file is None:
            return
        for key, (start, width) in self._slots.items():
            try:
                os.pwrite(self._file.fd(), _fitted(content[key], width).encode(), start)
            except OSError:
                return  # `error` has the reason already


def _start_of(key: str, text: str) -> int:
    """Where the value of a key of the outermost object begins."""
    # No string holds a line's end, and what is nested has a wider indent.
    marker = f"\n  {json.dumps(key)}: "
    return text.index(marker) + len(marker)


def _fitted(value: Any, width: int) -> str:
    """A value as JSON within `width` characters, right-aligned; a longer string loses its middle."""
    text, kept = json.dumps(value), width
    while len(text) > width:
        kept -= 2
        text = json.dumps(f"{value[: kept // 2]}...{value[len(value) - kept // 2 :]}")
    return text.rjust(width)
