"""os._exit and exec: a program that leaves without exit handlers. Evidence is completed before, in bounded time.

All of os.exec* end in os.execv or os.execve, which these replace as well.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

# For reading results back from a device that may hang, which can be just why the program leaves.
_PATIENCE_S = 10.0


class Leaving(Protocol):
    """What is told of an end that no exit handler sees."""

    def exit_status(self) -> int | None:
        """What the process has to end with, whatever the program says; None for what the program says."""

    def leave(self, ended_by: str, is_main: bool) -> None:
        """The process is about to end. Its main thread does nothing else meanwhile, if it is that which leaves."""

    def give_way(self, ended_by: str, is_main: bool) -> None:
        """Likewise, but another program goes on in this process."""

    def stay(self, failure: str) -> None:
        """It has not given way after all."""


def before_hard_exit(leaving: Leaving) -> None:
    """Tell `leaving` when this process, and not a fork of it, leaves through os._exit or gives way to another program.

    A program that has bound the functions to names of its own before is not seen.
    """
    pid = os.getpid()
    os._exit = _telling_exit(os._exit, leaving, pid)
    os.execv = _telling_exec(os.execv, leaving, pid)
    os.execve = _telling_exec(os.execve, leaving, pid)


def _telling_exit(hard_exit: Any, leaving: Leaving, pid: int) -> Any:
    @functools.wraps(hard_exit)
    def leave(status: int) -> None:
        def go() -> None:
            instead = leaving.exit_status()
            hard_exit(status if instead is None else instead)

        # With any other status the call fails, and the program goes on.
        if os.getpid() != pid or not isinstance(status, int) or not -(2**31) <= status < 2**31:
            hard_exit(status)
        _tell(leaving.leave, f"os._exit {int(status)}", go)
        go()

    leave.__module__ = "os"  # where pickle finds it
    return leave


def _telling_exec(execute: Any, leaving: Leaving, pid: int) -> Any:
    name = f"os.{execute.__name__}"

    @functools.wraps(execute)
    def leave(path: Any, *args: Any, **keywords: Any) -> None:
        go = functools.partial(execute, path, *args, **keywords)
        # os.execvp and others try one directory after the other, and what is not there fails as it always has.
        if os.getpid() != pid or not _can_run(path):
            go()
        stays = _tell(leaving.give_way, f"{name} {os.path.basename(os.fsdecode(path))}", go)
        try:
            go()
        except BaseException as error:
            stays.set()
            try:
                leaving.stay(f"{name} failed: {type(error).__name__}: {error}")
            except Exception:
                pass  # it is the program's own failure that counts
            raise

    leave.__module__ = "os"
    return leave


def _can_run(path: Any) -> bool:
    try:
        return os.path.isfile(path) and os.access(path, os.X_OK)
    except (TypeError, ValueError):
        return False


def _tell(tell: Callable[[str, bool], None], ended_by: str, leave: Callable[[], None]) -> threading.Event:
    """Tell, but no longer than is bearable: then another thread leaves, unless the event has been set."""
    stays = threading.Event()
    with contextlib.suppress(RuntimeError):
        # Fails where Python is about to end (in an exit handler, from 3.12 on), or where no more threads can be had.
        # Then nothing bounds the time; nevertheless, evidence comes first.
        _thread.start_new_thread(_leave_later, (leave, stays))
    try:
        tell(ended_by, threading.get_ident() == threading.main_thread().ident)
    except Exception:
        pass  # the program leaves, whatever happens
    return stays


def _leave_later(leave: Callable[[], None], stays: threading.Event) -> None:
    if not stays.wait(_PATIENCE_S):
        leave()
