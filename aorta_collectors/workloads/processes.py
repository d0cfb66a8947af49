"""A command in a session of its own, none of whose processes is left when it is over.

The ranks of torchrun, and whatever else calls setsid, leave the command's session. So all processes of a command are
known by a mark in their environment as well, which children inherit.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from aorta_collectors.linux import stat_fields

log = logging.getLogger("aorta.collectors")

# A command that runs a sweep itself hands the mark of the outer one on beside its own.
_MARK_VARIABLE = "AORTA_COLLECTORS_COMMAND"
_POLL_S = 0.05
# Helpers such as multiprocessing's resource tracker end by themselves, a moment after the command.
_HELPERS_MAY_TAKE_S = 1.0
_GRACE_S = 10.0
_KILL_MAY_TAKE_S = 5.0


class Command:
    """A command and all that it starts."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: BinaryIO, err: BinaryIO) -> None:
        """Start it.

        Args:
            argv: Looked for on this process's PATH, and below `cwd` where it is a relative path.
            env: Its whole environment.
            out, err: Where its output goes. Standard input is empty.

        Raises:
            OSError: It cannot be started.
        """
        marked = {**env, _MARK_VARIABLE: f"{env.get(_MARK_VARIABLE, '')} {self._mark}".strip()}
        self._process = subprocess.Popen(
            list(argv), cwd=cwd, env=marked, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the command has ended by itself within `timeout_s` seconds. What it has started may still run."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_over():
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self, *, now: bool = False) -> list[str]:
        """Leave no process: SIGTERM, and SIGKILL after ten seconds or at an interruption. Safe to call again.

        Args:
            now: Do not wait for what is about to end by itself.

        Returns:
            Those that would have stayed, as "pid (name)".
        """
        if self._process is not None and self._process.returncode is not None:
            return []
        try:
            if not now:
                self._await_none(_HELPERS_MAY_TAKE_S)
            left = [f"{pid} ({_name(pid)})" for pid in self._alive()]
            self._send(signal.SIGTERM)
            self._await_none(_GRACE_S)
        finally:
            until = time.monotonic() + _KILL_MAY_TAKE_S
            # Again and again, since what is being killed may have started another one.
            while self._send(signal.SIGKILL) and time.monotonic() < until:
                time.sleep(_POLL_S)
            still = self._alive()
            if still:
                log.warning("processes of a script that cannot be killed: %s", ", ".join(map(str, still)))
            if self._process is not None and self._is_over():
                self._process.wait()
        return left

    @property
    def exit_code(self) -> int:
        """Of the command itself, once it was ended; -N for a signal N."""
        code = self._process.returncode if self._process is not None else None
        return code if code is not None else -signal.SIGKILL

    def _is_over(self) -> bool:
        if self._process is None:
            return True
        # The zombie is left for `end`: while it is there, nobody else's session can have its number.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _await_none(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._alive() and time.monotonic() < until:
            time.sleep(_POLL_S)

    def _send(self, number: signal.Signals) -> bool:
        """Send a signal to all; returns whether there was one to get it."""
        alive = self._alive()
        for pid in alive:
            try:
                os.kill(pid, number)
            except OSError:
                pass  # it has just ended, or has become another user's
        return bool(alive)

    def _alive(self) -> list[int]:
        """The command's processes, those that are dead but not waited for left out."""
        leader = self._process.pid if self._process is not None else None
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        return [pid for pid in pids if self._is_ours(pid, leader)]

    def _is_ours(self, pid: int, leader: int | None) -> bool:
        try:
            state, _, _, session = stat_fields(pid)[:4]
            # A main thread that has ended before others is a zombie of a process that has not.
            if state in "ZX" and (pid != leader or self._is_over()):
                return False
            return int(session) == leader or self._mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False  # gone, or another user's


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return "?"
