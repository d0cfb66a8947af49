"""os._exit: a program that leaves without exit handlers. Evidence is completed before it does, in bounded time."""

from __future__ import annotations

import _thread
import functools
import os
import threading
import time
from collections.abc import Callable

# For reading results back from a device that may hang, which can be just why the program leaves.
_PATIENCE_S = 10.0


def before_hard_exit(last_words: Callable[[str, bool], None]) -> None:
    """Have `last_words` called when this process, and not a fork of it, leaves through os._exit.

    A program that has bound the function to a name of its own before is not seen.

    Args:
        last_words: Takes "os._exit N", and whether the main thread leaves, which then does nothing else meanwhile.
    """
    hard_exit, pid = os._exit, os.getpid()

    @functools.wraps(hard_exit)
    def leave(status: int) -> None:
        if os.getpid() == pid and isinstance(status, int):
            try:
                _thread.start_new_thread(_leave_later, (hard_exit, status))
                is_main = threading.get_ident() == threading.main_thread().ident
                last_words(f"os._exit {int(status)}", is_main)
            except Exception:
                pass  # the program leaves, whatever happens
        hard_exit(status)

    leave.__module__ = "os"  # where pickle finds it
    os._exit = leave  # type: ignore[assignment]


def _leave_later(hard_exit: Callable[[int], None], status: int) -> None:
    time.sleep(_PATIENCE_S)
    hard_exit(status)
