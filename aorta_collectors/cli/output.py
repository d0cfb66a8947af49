"""Where a verb's result goes: the terminal, a pipe, or a file that is written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from aorta_collectors.errors import CollectorsError

if TYPE_CHECKING:
    from rich.console import Console

#: Lines that nobody looks at on a terminal stay whole: what is wrapped can be neither copied nor grepped.
_UNBOUNDED = 10_000


class Output:
    """A context manager: what was written to a file is there when it is left without an error.

    Args:
        path: A file; None for stdout.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is None and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has a letter for every layer name
        self.stream: TextIO = sys.stdout if path is None else _aside(path)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._path is not None:
            with self.stream:
                if error is None:
                    self.stream.seek(0)
                    write_whole(self._path, self.stream.buffer)

    def json(self, value: Any) -> None:
        """One JSON document. NaN and infinities are text in there: JSON has no such numbers."""
        click.echo(json.dumps(value, indent=2, allow_nan=False), file=self.stream)

    def console(self) -> Console:
        """For rich: colours only on a terminal, and there lines as wide as it."""
        from rich.console import Console

        width = None if self.stream.isatty() else _UNBOUNDED
        return Console(file=self.stream, width=width, highlight=False, markup=False, emoji=False)


def _aside(path: Path) -> TextIO:
    """A file without a name, on the disk of `path`: what is written may be larger than memory."""
    check_target(path)
    try:
        return tempfile.TemporaryFile("w+", dir=path.parent, encoding="utf-8", errors="backslashreplace", newline="")
    except OSError as error:
        raise CollectorsError(f"cannot write {path}: {error.strerror}") from None


def check_target(path: Path) -> None:
    """Refuse to put a file in the place of a device, a FIFO or a directory. Raises CollectorsError."""
    if path.exists() and not path.is_file():
        raise CollectorsError(f"{path} is no regular file, and would be replaced by one: name another")


def write_whole(path: Path, content: bytes | BinaryIO) -> None:
    """Write a file whole or not at all. Raises CollectorsError."""
    check_target(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(descriptor, "wb") as stream:
                shutil.copyfileobj(io.BytesIO(content) if isinstance(content, bytes) else content, stream)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise CollectorsError(f"cannot write {path}: {error.strerror}") from None
