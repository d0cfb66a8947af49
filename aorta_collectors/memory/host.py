"""What the kernel tells of this process's own memory: one read of a file that stays open."""

from __future__ import annotations

import os
import re
import tracemalloc
from typing import Any

from aorta_collectors.observe.held import Held, set_aside

_STATUS = "/proc/self/status"
_KIB = 1024
# Far longer than the file: a read that stops short of its end would miss a line.
_MOST_BYTES = 1 << 14
#: What the lines of /proc/self/status (proc(5)) are called in a line of ours. All are in kibibytes.
FIELDS = {
    b"VmRSS": "rss",
    b"RssShmem": "shared",
    b"RssAnon": "anonymous",
    b"VmSwap": "swap",
    b"VmHWM": "peak_rss",
}
_LINE = re.compile(rb"^(" + rb"|".join(FIELDS) + rb"):\s+(\d+) kB$", re.MULTILINE)


class HostMemory:
    """Reads this process's memory, in some ten microseconds and without taking any for good.

    Attributes:
        untold: Fields that this system does not tell; they are 0 then.
    """

    def __init__(self) -> None:
        self.untold: list[str] = []
        self._file: Held | None = None

    def open(self) -> None:
        """Have the file open. Raises OSError where there is no /proc."""
        self._file = Held(set_aside(_opened()), _opened)
        known = self.read()
        found = {FIELDS[name] for name, _ in _LINE.findall(self._text())}
        self.untold = [name for name in known if name not in found and name != "python"]

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def read(self) -> dict[str, Any]:
        """Bytes, as a line's `host` has them. Raises OSError where the file cannot be read."""
        told: dict[str, Any] = dict.fromkeys(FIELDS.values(), 0)
        for name, kibibytes in _LINE.findall(self._text()):
            told[FIELDS[name]] = int(kibibytes) * _KIB
        told["python"] = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else None
        return told

    def _text(self) -> bytes:
        assert self._file is not None
        try:
            return os.pread(self._file.fd(), _MOST_BYTES, 0)
        except OSError:
            # The program has closed all descriptors, and the kernel calls the file by another number by now.
            self._file = Held(set_aside(_opened()), _opened)
            return os.pread(self._file.fd(), _MOST_BYTES, 0)


def _opened() -> int:
    return os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
