"""Reading and writing below a results directory that the measured program could write to.

Every component below the anchor is opened relative to its parent with O_NOFOLLOW, so that a link put there, or a
directory swapped while we look, cannot lead out of the tree. The anchor is checked against the inode that it had
before the program started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.errors import ArtifactError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIMIT_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20


class DirectoryMissing(ArtifactError):
    """The directory does not exist."""


@dataclass(frozen=True)
class Anchor:
    """The operator's directory: its path and, where known, the (device, inode) that it had before the run."""

    path: Path
    identity: tuple[int, int] | None = None

    @contextlib.contextmanager
    def open(self, directory: Path) -> Iterator[ArtifactDirectory]:
        """Open a directory at or below the anchor.

        Raises:
            DirectoryMissing: A component does not exist.
            ArtifactError: A component is a link, no directory, or the anchor has been replaced.
        """
        try:
            components = directory.relative_to(self.path).parts
        except ValueError:
            raise ArtifactError(f"{directory} does not lie below {self.path}") from None
        fd = _open_directory(str(self.path), None)
        try:
            status = os.fstat(fd)
            if self.identity is not None and (status.st_dev, status.st_ino) != self.identity:
                raise ArtifactError(f"{self.path} is no longer the directory that it was when the trial began")
            for component in components:
                if component == os.pardir:
                    raise ArtifactError(f"{directory} leaves {self.path}")
                inner = _open_directory(component, fd)
                os.close(fd)
                fd = inner
            yield ArtifactDirectory(fd, directory)
        finally:
            os.close(fd)


class ArtifactDirectory:
    """An open directory; implements `api.Artifacts`, and writes files of ours."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = path

    def sizes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        try:
            for name in sorted(os.listdir(self._fd)):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[name] = status.st_size
        except OSError as error:
            raise ArtifactError(f"{self.path}: {error.strerror}") from None
        return found

    def read(self, name: str, limit_bytes: int = _LIMIT_BYTES) -> bytes:
        with self._open(name) as fd:
            size = os.fstat(fd).st_size
            if size > limit_bytes:
                raise ArtifactError(f"{self.path / name}: {size} bytes, more than the {limit_bytes} that it can have")
            with os.fdopen(os.dup(fd), "rb") as stream:
                return stream.read(limit_bytes)

    def lines(self, name: str) -> Iterator[bytes]:
        with self._open(name) as fd, os.fdopen(os.dup(fd), "rb") as stream:
            yield from stream

    def sha256(self, name: str) -> str:
        """Hex digest of a file's content."""
        digest = hashlib.sha256()
        with self._open(name) as fd, os.fdopen(os.dup(fd), "rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file atomically. Raises ArtifactError."""
        temporary = f".{name}.{os.getpid()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o644, dir_fd=self._fd)
            with os.fdopen(fd, "wb") as stream:
                stream.write(content)
            os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._fd)
            raise ArtifactError(f"{self.path / name}: {error.strerror}") from None

    def copy_in(self, path: Path) -> None:
        """Copy a file here, under its own name, which must be new. Raises ArtifactError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with path.open("rb") as source, os.fdopen(os.open(path.name, flags, 0o644, dir_fd=self._fd), "wb") as copy:
                shutil.copyfileobj(source, copy, _BLOCK_BYTES)
        except OSError as error:
            raise ArtifactError(f"{self.path / path.name}: {error.strerror}") from None

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[int]:
        if os.sep in name or name in (os.curdir, os.pardir):
            raise ArtifactError(f"{name!r} is not a file name")
        try:
            # O_NONBLOCK: a FIFO put in a file's place must not hang the reader.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError as error:
            raise ArtifactError(f"{self.path / name}: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ArtifactError(f"{self.path / name}: not a regular file")
            yield fd
        finally:
            os.close(fd)


def _open_directory(name: str, parent: int | None) -> int:
    try:
        return os.open(name, _DIRECTORY if parent is not None else _DIRECTORY & ~os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        raise DirectoryMissing(f"{name} does not exist") from None
    except OSError as error:
        # With O_DIRECTORY, a link that is not followed reads as "not a directory".
        if parent is not None and _is_link(name, parent):
            raise ArtifactError(f"{name} is a symbolic link, which is not followed") from None
        raise ArtifactError(f"{name}: {error.strerror}") from None


def _is_link(name: str, parent: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False
