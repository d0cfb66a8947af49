"""A program without torch that looks at itself, in a situation that its first argument names; prints what it saw.

The further arguments are the sources that the helper may use.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.profile.escalation.sources import Unavailable

_FORBIDDEN = {"x86_64": (101, 298), "aarch64": (117, 241)}  # ptrace, perf_event_open
_LOOK_S = 0.25


def look(helper: Helper, during: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """Of a stretch of sleeping with `during` in its middle."""
    try:
        remarks = helper.begin(threading.get_native_id())
        time.sleep(_LOOK_S / 2)
        during()
        time.sleep(_LOOK_S / 2)
        breakdown, more = helper.end(1)
    except Unavailable as reason:
        return {"unavailable": [str(reason)]}
    return {"breakdown": breakdown, "unavailable": remarks + more}


def forbid_tracing() -> None:
    """By seccomp, as containers do: the calls of this process and its children fail with EPERM."""
    load, jump_if_equal, give = 0x20, 0x15, 0x06
    numbers = _FORBIDDEN[os.uname().machine]
    program = [(load, 0, 0, 0)]
    program += [(jump_if_equal, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    program += [(give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050001)]

    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]

    filters = (Filter * len(program))(*(Filter(*line) for line in program))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    assert libc.prctl(22, 2, ctypes.byref(Program(len(filters), filters)), 0, 0) == 0, ctypes.get_errno()


def children(helper: Helper) -> dict[str, Any]:
    """The program reaps whatever it is told of, and waits for children of its own."""
    reaped: list[int] = []

    def reap(_number: int, _frame: object) -> None:
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) > 0:
                reaped.append(pid)
        except ChildProcessError:
            pass

    signal.signal(signal.SIGCHLD, reap)
    own = subprocess.Popen(["sleep", "0.1"])
    found = look(helper)
    found["own_was_reaped"] = own.pid in reaped
    try:
        os.waitpid(-1, os.WNOHANG)
        found["has_children"] = True
    except ChildProcessError:
        found["has_children"] = False
    return found


def forks(helper: Helper) -> dict[str, Any]:
    """A child is forked and ends while the process is looked at."""
    status = []

    def fork() -> None:
        child = os.fork()
        if not child:
            time.sleep(0.02)
            os._exit(7)
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    found = look(helper, fork)
    return {**found, "status": status}


def leaves(helper: Helper) -> dict[str, Any]:
    """It ends in the middle of a look."""
    remarks = helper.begin(threading.get_native_id())
    print(json.dumps({"unavailable": remarks, "helper": helper.pid}), flush=True)
    os._exit(3)


def idles(helper: Helper) -> dict[str, Any]:
    """The helper is killed between two looks."""
    look(helper)
    assert helper.pid > 0  # 0 would be everybody
    os.kill(helper.pid, signal.SIGKILL)
    return look(helper)


def killed(helper: Helper) -> dict[str, Any]:
    """The helper is killed in the middle of one."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    found = look(helper, lambda: os.kill(helper.pid, signal.SIGKILL))
    return {**found, "again": look(helper)}


def twice(helper: Helper) -> dict[str, Any]:
    return {"first": look(helper), **look(helper)}


def forbidden(helper: Helper) -> dict[str, Any]:
    forbid_tracing()
    return look(helper)


SITUATIONS = {
    "plain": look,
    "children": children,
    "forks": forks,
    "leaves": leaves,
    "idles": idles,
    "killed": killed,
    "twice": twice,
    "forbidden": forbidden,
}

if __name__ == "__main__":
    print(json.dumps(SITUATIONS[sys.argv[1]](Helper(tuple(sys.argv[2:])))))
