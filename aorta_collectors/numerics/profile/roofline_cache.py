"""Rooflines that earlier processes have measured: one JSON file of the user, of which ranks write one at a time.

A directory that cannot be written to is no fault: each process measures for itself then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_VERSION = 1
_FIELDS = {"device", "flops_per_s", "bytes_per_s", "launch_us", "threads", "busy_cores", "measured_at"}
# For another rank that measures; a process that was stopped while it held the lock must not stop this one.
_MOST_WAIT_S = 30.0


class RooflineCache:
    """The file.

    Args:
        path: Of the file; by default $XDG_CACHE_HOME/aorta-collectors/roofline.json, below ~/.cache without it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or _default_path()

    def read(self, key: str) -> dict[str, Any] | None:
        """What was measured under `key`; None where that is not there, or is no such thing."""
        found = self._entries().get(key)
        if not isinstance(found, dict) or set(found) != _FIELDS or not isinstance(found["flops_per_s"], dict):
            return None
        numbers = [*found["flops_per_s"].values(), found["bytes_per_s"], found["launch_us"]]
        if not isinstance(found["busy_cores"], (int, float)):
            return None
        if not all(isinstance(number, (int, float)) and number > 0 for number in numbers):
            return None
        return found

    def write(self, key: str, values: Mapping[str, Any]) -> None:
        """Keep it, beside what others have kept; under the lock, so that nobody's is lost."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            entries = {**self._entries(), key: dict(values)}
            descriptor, temporary = tempfile.mkstemp(prefix=".roofline", dir=self._path.parent)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump({"version": _VERSION, "entries": entries}, file, indent=1)
                os.replace(temporary, self._path)
            except OSError:
                os.unlink(temporary)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While others measure, wait; and go on without the lock where there is none to be had."""
        descriptor = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if descriptor is not None:
                _lock(descriptor)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _entries(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes()) if self._path is not None else {}
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            return {}
        entries = content.get("entries")
        return entries if isinstance(entries, dict) else {}


def _default_path() -> Path | None:
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        directory = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    except RuntimeError:
        return None  # a user without a home
    return directory / "aorta-collectors" / "roofline.json"


def _lock(descriptor: int) -> None:
    until = time.monotonic() + _MOST_WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return  # a file system without locks
