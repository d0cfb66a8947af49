"""Workers of a multiprocessing.Pool, which are ended by SIGTERM in the ordinary course of a `with` block."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import queues
from types import CodeType, FrameType
from typing import Any, NamedTuple


class _Told(NamedTuple):
    """What is told of the end; see `close_when_terminated`."""

    close: Callable[[str], None]
    closing: CodeType
    leave: Callable[[str, bool], None]


def close_when_terminated(close: Callable[[str], None], closing: CodeType, leave: Callable[[str, bool], None]) -> None:
    """In a pool's worker that would die of SIGTERM, have evidence completed first.

    The signal kills as it did, though no sooner than native code returns, which is why only these workers get a
    handler. To be called within a task; does nothing in any other process. Each call's evidence is completed.

    Args:
        close: Called with "exit" when the signal comes between two tasks, or after the last.
        closing: Its code. A process that runs that already ends by itself.
        leave: Called with the signal's name and False when it comes in the middle of one.
    """
    pool = sys.modules.get("multiprocessing.pool")
    if pool is None or threading.current_thread() is not threading.main_thread():
        return
    worker = pool.worker.__code__
    is_worker, _ = _called_by(sys._getframe(), worker)
    if not is_worker:
        return
    handler: Any = signal.getsignal(signal.SIGTERM)
    if handler is signal.SIG_DFL:
        handler = _Termination(worker)
        signal.signal(signal.SIGTERM, handler)
    if isinstance(handler, _Termination):
        handler.told.append(_Told(close, closing, leave))


class _Termination:
    """The handler of one worker, not of its forks."""

    def __init__(self, worker: CodeType) -> None:
        self.told: list[_Told] = []
        self._worker = worker
        self._pid = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            if any(_called_by(frame, told.closing)[0] for told in self.told):
                return  # the worker is about to end by itself, or of the same signal
            is_worker, called = _called_by(frame, self._worker)
            waiting = (queues.SimpleQueue.get.__code__, queues.SimpleQueue.put.__code__)
            in_task = is_worker and called is not None and called.f_code not in waiting
            for told in self.told:
                if in_task:
                    told.leave(f"signal {signal.Signals(number).name}", False)
                else:
                    told.close("exit")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _called_by(frame: FrameType | None, code: CodeType) -> tuple[bool, FrameType | None]:
    """Whether `code` is on the stack that ends with `frame`, and the frame of what it has called."""
    called = None
    while frame is not None:
        if frame.f_code is code:
            return True, called
        called, frame = frame, frame.f_back
    return False, None
