"""The observed process's side of the helper: starting it so that the program does not see it, and asking it.

The helper is no child of the program's: what starts it ends at once, so that no wait() of the program's ever waits for
it. All waiting is bounded.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.numerics.profile.escalation.breakdown import breakdown
from aorta_collectors.numerics.profile.escalation.sources import Probe, Unavailable

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[4])
_MODULE = "aorta_collectors.numerics.profile.escalation.helper"
# Nothing that the program's environment or site-packages have for Python reaches it, to arm it or to slow its start.
_RUN = f"import sys; sys.path.insert(0, sys.argv[1]); from {_MODULE} import main; main(*map(int, sys.argv[2:]))"
_TIMEOUT_S = 2.0
_NUM_PROBES = 20
_PR_SET_PTRACER = 0x59616D61
_CAP_SYS_PTRACE = 19


class _Gone(Unavailable):
    """The helper has ended."""


class Helper:
    """Starts one when it is needed, and again where the last one has gone.

    Args:
        sources: What it may look with, in the order in which they are tried.

    Attributes:
        pid: Of the last one; 0 before the first.
    """

    def __init__(self, sources: tuple[str, ...] = ("perf", "strace", "proc")) -> None:
        self._sources = sources
        self._channel: socket.socket | None = None
        self._unread = b""
        self.pid = 0
        self._started_in = 0
        self._is_permitted = False
        self._began_ns = self._least_ns = 0
        self._probe = Probe(0.0, 0.0)

    def begin(self, tid: int) -> list[str]:
        """Look at this process from now on; `tid` is the thread that runs the step, and calls this.

        Returns:
            What could not be used, one sentence each.

        Raises:
            Unavailable: Nothing can look.
        """
        known = self._channel
        try:
            answer = self._begun(tid)
        except _Gone:
            is_new = known is None or self._channel is not known
            self.close()
            if is_new:
                raise
            answer = self._begun(tid)  # that of an earlier look has ended just now
        self._probe = _probed()
        self._began_ns = time.perf_counter_ns()
        self._least_ns = int(answer["least_us"] * 1e3)
        return [str(remark) for remark in answer["remarks"]]

    def _begun(self, tid: int) -> dict[str, Any]:
        """The helper's answer that it looks."""
        try:
            self._connect()
            self._permit()
            return self._ask({"do": "begin", "tid": tid, "sources": self._sources}, len(self._sources) * _TIMEOUT_S)
        except _Gone:
            raise
        except OSError as error:
            self.close()
            raise Unavailable(f"The helper could not be asked: {error}.") from error
        except Unavailable:
            self.close()
            raise

    def has_seen_enough(self) -> bool:
        """Whether a look that is ended now can tell something."""
        return time.perf_counter_ns() - self._began_ns >= self._least_ns

    def end(self, steps: int) -> tuple[dict[str, Any], list[str]]:
        """Look no longer.

        Args:
            steps: That there were in between.

        Returns:
            The breakdown, and what could not be told, one sentence each.

        Raises:
            Unavailable: Nothing was seen after all.
        """
        wall_us = (time.perf_counter_ns() - self._began_ns) / 1e3
        # Other processes may leave more or less to the tool than when the look began.
        probe = [(now + then) / 2 for now, then in zip(_probed(), self._probe, strict=True)]
        try:
            answer = self._ask({"do": "end", "probe": probe}, 2 * _TIMEOUT_S)
        except OSError as error:
            self.close()
            raise Unavailable(f"The helper did not answer: {error}.") from error
        except _Gone:
            self.close()
            raise
        finally:
            self._forbid()
        return breakdown(answer, wall_us, steps), [str(remark) for remark in answer["remarks"]]

    def close(self) -> None:
        """Let it go; it ends by itself, and so does what it looks with."""
        self._forbid()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._unread = b""

    def _connect(self) -> None:
        if self._channel is not None and self._started_in == os.getpid() and not self._is_gone():
            return
        self.close()
        if not os.path.isdir("/proc/self/task"):
            raise Unavailable("Without /proc nothing can look at the process.")
        # In a frozen program this is the program itself.
        if not sys.executable or getattr(sys, "frozen", False):
            raise Unavailable("There is no Python that could look at the process.")
        ours, theirs = socket.socketpair()
        with theirs:
            # Its SIGCHLD comes at once, and is of a child that is gone by then.
            starting = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _RUN, _PACKAGE_ROOT, str(os.getpid()), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
                cwd="/",
            )
        self._channel, self._started_in = ours, os.getpid()
        try:
            starting.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            starting.kill()
            starting.wait()
            raise Unavailable(f"The helper did not start within {_TIMEOUT_S} s.") from None
        self.pid = int(self._read(_TIMEOUT_S)["pid"])

    def _is_gone(self) -> bool:
        """Whether the helper has closed its end."""
        assert self._channel is not None
        self._channel.setblocking(False)
        try:
            return self._channel.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _ask(self, what: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._channel is None or self._started_in != os.getpid():
            raise _Gone("The helper has ended.")
        # The program may have chosen to die of SIGPIPE.
        try:
            self._channel.sendall(json.dumps(what).encode() + b"\n", socket.MSG_NOSIGNAL)
        except BrokenPipeError:
            raise _Gone("The helper has ended.") from None
        answer = self._read(timeout_s)
        if "error" in answer:
            raise Unavailable(str(answer["error"]))
        return answer

    def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self._channel is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            self._channel.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                received = self._channel.recv(65536)
            except ConnectionResetError:
                received = b""
            if not received:
                raise _Gone("The helper has ended.")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _permit(self) -> None:
        """Where only a parent may trace (Yama), let the helper and what it starts do so."""
        if ptrace_scope() == 1 and not _may_trace_all():
            self._is_permitted = _prctl(_PR_SET_PTRACER, self.pid)

    def _forbid(self) -> None:
        if self._is_permitted:
            self._is_permitted = False
            _prctl(_PR_SET_PTRACER, 0)


def _probed() -> Probe:
    """What a system call takes now, on this thread."""
    cpu_began_ns, began_ns = time.thread_time_ns(), time.perf_counter_ns()
    for _ in range(_NUM_PROBES):
        os.getppid()
    wall_ns, cpu_ns = time.perf_counter_ns() - began_ns, time.thread_time_ns() - cpu_began_ns
    return Probe(wall_ns / 1e3 / _NUM_PROBES, cpu_ns / 1e3 / _NUM_PROBES)


def _environment() -> dict[str, str]:
    """What the helper gets: where libraries and tools are, but nothing that changes what runs. Tools speak English."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AORTA_", "LD_PRELOAD"))
    }
    return {**kept, "LC_ALL": "C"}


def ptrace_scope() -> int:
    """Who may trace: 0, any process of the same user; 1, a parent; 2, an administrator; 3, nobody."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0


def _may_trace_all() -> bool:
    try:
        status = Path("/proc/self/status").read_text(errors="replace")
        effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
        return bool(int(effective, 16) >> _CAP_SYS_PTRACE & 1)
    except (OSError, ValueError, StopIteration):
        return False


def _prctl(option: int, argument: int) -> bool:
    return int(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), 0, 0, 0)) == 0
