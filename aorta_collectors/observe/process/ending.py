"""The end of a process: how its program ended, told at the last moment at which evidence can be completed.

A process that multiprocessing has started does not end as others do. Its target's exception is caught and printed, so
that the interpreter never sees it, and below a fork server the process leaves without running exit handlers.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from multiprocessing import parent_process, util

# At exit, multiprocessing joins the program's children before it runs finalizers of a priority below 0.
_AFTER_CHILDREN = -1000


class Ending:
    """Calls `close` once the program and the processes it waits for are over, but in no fork of this process.

    Args:
        close: Takes "exit", or the exception that ended the program. May be called twice.
    """

    def __init__(self, close: Callable[[str], None]) -> None:
        self._close = close
        self._pid = os.getpid()
        self._failure: str | None = None
        atexit.register(self._at_exit)
        # Where torch is imported with the module that has the target, multiprocessing has yet to make this process a
        # worker, and forgets all finalizers then. It remembers this object for as long as the exit handler does.
        util.register_after_fork(self, Ending._expect_the_end)
        self._expect_the_end()

    def _expect_the_end(self) -> None:
        if os.getpid() == self._pid:
            util.Finalize(None, self._at_end, exitpriority=_AFTER_CHILDREN)

    def _at_end(self) -> None:
        if parent_process() is None:
            # The interpreter keeps an uncaught exception in sys.last_value; exit handlers run after that.
            self._close(_failure(getattr(sys, "last_value", None)) or "exit")
            return
        # A worker's target has returned, or is being left by the exception at hand. Its threads may still be at work.
        self._failure = _failure(sys.exc_info()[1])
        if is_below_fork_server():
            self._at_exit()

    def _at_exit(self) -> None:
        if parent_process() is not None:
            self._close(self._failure or "exit")


def is_below_fork_server() -> bool:
    """Whether this process is the server of multiprocessing's forkserver method, or one that the server forked."""
    return any(word.startswith("from multiprocessing.forkserver import ") for word in sys.orig_argv[-1:])


def _failure(error: BaseException | None) -> str | None:
    """The exception in a line; None for none, and for a program that left by sys.exit.

    torch.multiprocessing.spawn handles a target's exception by leaving with status 1: that exception is meant then.
    """
    if isinstance(error, SystemExit):
        return None if error.code in (None, 0) else _failure(error.__context__)
    return None if error is None else described(error)


def described(error: BaseException) -> str:
    """An exception in a line, as tracebacks end with it."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
