"""Reading and writing below a results directory that the measured program could write to.

Every component below the anchor is opened relative to its parent with O_NOFOLLOW, so that a link put there, or a
directory swapped while we look, cannot lead out of the tree. The anchor is checked against the inode that it had
before the program started.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import io
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aorta_collectors.errors import ArtifactError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIMIT_BYTES = 64 << 20
_LINE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_MOST_FILES = 50_000


class Kind(enum.Enum):
    """What an entry of a directory is; OTHER are sockets, FIFOs and devices."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    OTHER = "special file"


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
    """An open directory; implements `api.Artifacts`, and writes files of ours.

    What is verified is one state of the files: the listing is made once, a file is read as far as it went when it was
    opened, and one that is read again must be the same.
    """

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = path
        self._sizes: dict[str, int] | None = None
        self._sha256: dict[str, str] = {}

    def sizes(self) -> Mapping[str, int]:
        if self._sizes is None:
            found: dict[str, int] = {}
            try:
                for name, kind in self.entries():
                    if kind is Kind.FILE:
                        with contextlib.suppress(FileNotFoundError):
                            found[name] = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size
                    if len(found) > _MOST_FILES:
                        raise ArtifactError(f"{self.path}: more than {_MOST_FILES} files, the most that are looked at")
            except OSError as error:
                raise ArtifactError(f"{self.path}: {error.strerror}") from None
            self._sizes = dict(sorted(found.items()))
        return self._sizes

    def entries(self) -> Iterator[tuple[str, Kind]]:
        """What lies in the directory, in no order. Raises ArtifactError."""
        try:
            with os.scandir(self._fd) as found:
                for entry in found:
                    yield entry.name, _kind(entry)
        except OSError as error:
            raise ArtifactError(f"{self.path}: {error.strerror}") from None

    def read(self, name: str, limit_bytes: int = _LIMIT_BYTES) -> bytes:
        with self._open(name) as (fd, size):
            if size > limit_bytes:
                raise ArtifactError(f"{self.path / name}: {size} bytes, more than the {limit_bytes} that it can have")
            content = b"".join(_blocks(fd, size))
        self._was_read(name, hashlib.sha256(content))
        return content

    def lines(self, name: str) -> Iterator[bytes]:
        digest, rest, number = hashlib.sha256(), b"", 0
        with self._open(name) as (fd, size):
            for block in _blocks(fd, size):
                digest.update(block)
                text = rest + block
                end = text.rfind(b"\n") + 1
                number += text.count(b"\n")
                yield from io.BytesIO(text[:end])
                rest = text[end:]
                if len(rest) > _LINE_BYTES:
                    raise ArtifactError(
                        f"{self.path / name}: line {number + 1} is longer than the {_LINE_BYTES} bytes that it can have"
                    )
        if rest:
            yield rest
        self._was_read(name, digest)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """A descriptor of a regular file, for a reader that goes on where it was. Raises ArtifactError."""
        with self._open(name) as (fd, _):
            yield fd

    def sha256(self, name: str) -> str:
        """Hex digest of a file's content: of what was read, where it was read to its end."""
        if name not in self._sha256:
            digest = hashlib.sha256()
            with self._open(name) as (fd, size):
                for block in _blocks(fd, size):
                    digest.update(block)
            self._was_read(name, digest)
        return self._sha256[name]

    def read_so_far(self) -> dict[str, str]:
        """Digests of the files that were read to their end, by name."""
        return dict(self._sha256)

    def _was_read(self, name: str, digest: hashlib._Hash) -> None:
        if self._sha256.setdefault(name, digest.hexdigest()) != digest.hexdigest():
            raise ArtifactError(f"{self.path / name}: changed while it was verified")

    def write(self, name: str, content: bytes) -> None:
        """Replace a file atomically. Raises ArtifactError."""
        self._sizes = None
        self._sha256.pop(name, None)
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
        self._sizes = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with path.open("rb") as source, os.fdopen(os.open(path.name, flags, 0o644, dir_fd=self._fd), "wb") as copy:
                shutil.copyfileobj(source, copy, _BLOCK_BYTES)
        except OSError as error:
            raise ArtifactError(f"{self.path / path.name}: {error.strerror}") from None

    def create(self, name: str) -> BinaryIO:
        """A new file, to be written and read; it takes the place of one of that name. Raises ArtifactError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)
            return os.fdopen(os.open(name, flags, 0o644, dir_fd=self._fd), "w+b")
        except OSError as error:
            raise ArtifactError(f"{self.path / name}: {error.strerror}") from None

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[tuple[int, int]]:
        """A descriptor of a regular file, and the file's size in bytes."""
        if os.sep in name or name in (os.curdir, os.pardir):
            raise ArtifactError(f"{name!r} is not a file name")
        try:
            # Looked at before: opening a device can do things. O_NONBLOCK: a FIFO put there since must not hang us.
            mode = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{self.path / name}: {getattr(error, 'strerror', error)}") from None
        if not stat.S_ISREG(mode):
            link = "a symbolic link, which is not followed" if stat.S_ISLNK(mode) else "not a regular file"
            raise ArtifactError(f"{self.path / name}: {link}")
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ArtifactError(f"{self.path / name}: not a regular file")
            yield fd, status.st_size
        finally:
            os.close(fd)


def _blocks(fd: int, size: int) -> Iterator[bytes]:
    """A file's first `size` bytes, or less where it ends before: one that keeps growing has an end all the same."""
    while size > 0 and (block := os.read(fd, min(size, _BLOCK_BYTES))):
        yield block
        size -= len(block)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return Kind.LINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.DIRECTORY
    return Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.OTHER


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
