"""A terminal of its own for a verb that draws on one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from tests.support import BIN, interruptible

COMMAND = str(BIN / "aorta-collectors")
ALTERNATE, NORMAL, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Screen:
    """The command on a terminal of its own."""

    def __init__(self, *words: str, verb: str = "watch", term: str = "xterm-256color") -> None:
        self.master, slave = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(slave)
        self.text = ""

        def lead() -> None:
            interruptible()
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        env = {**os.environ, "TERM": term, "LC_ALL": "C.UTF-8"}
        for size in ("COLUMNS", "LINES"):  # whoever exports these means them, and a worker of pytest-xdist has them
            env.pop(size, None)
        self.process = subprocess.Popen(
            [COMMAND, verb, *words], stdin=slave, stdout=slave, stderr=slave, preexec_fn=lead, env=env
        )
        self.slave = slave

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def until(self, wanted: str, since: int = 0) -> None:
        end = time.monotonic() + 60
        while wanted not in self.text[since:]:
            assert time.monotonic() < end, self.text[-2000:]
            self._read(0.2)

    def ended(self) -> int:
        """The exit status, once all that was written has been read."""
        end = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < end
            self._read(0.1)
        self._read(0.0)
        return self.process.returncode

    def close(self) -> None:
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = -1
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _read(self, seconds: float) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")
            seconds = 0.0


def restored(screen: Screen) -> bool:
    """Whether the terminal is as it was: its screen, its cursor, and how it takes keys."""
    text = screen.text
    other = text.count(ALTERNATE) == text.count(NORMAL) > 0
    return other and text.rindex(CURSOR) > text.rindex(ALTERNATE) and termios.tcgetattr(screen.slave) == screen.before
