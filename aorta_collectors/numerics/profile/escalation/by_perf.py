"""System calls timed by perf, thread by thread.

The kernel notes each call down by tracepoints, about 1 us each, so that no thread is ever stopped, no waiting call is
disturbed, and a debugger may be there too. It needs the right to read those of the kernel. `perf trace -s` sums them
up, but from a recording: on a live process it is woken for each call, which takes the program some 20 us.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict

from aorta_collectors.numerics.profile.escalation import categories
from aorta_collectors.numerics.profile.escalation.sources import Probe, Seen, Unavailable
from aorta_collectors.numerics.profile.escalation.threads import thread_ids
from aorta_collectors.numerics.profile.escalation.tools import Tool, file_in_memory

_THREAD = re.compile(r"^ \S.* \((\d+)\), \d+ events")
# syscall, calls, errors (not before perf 5.10), total in ms, min, avg, max, stddev.
_ROW = re.compile(r"^\s+([a-z]\w*)\s+\d+(?:\s+\d+)?\s+(\d+\.\d+)\s")
_LOST = re.compile(r"lost [1-9]\d* ")
_EVENTS = "raw_syscalls:sys_enter,raw_syscalls:sys_exit"
_MOST = "64M"


class ByPerf:
    """See sources.Source."""

    least_us = 20e3

    def __init__(self) -> None:
        self._recording = file_in_memory("perf")
        self._path = f"/proc/self/fd/{self._recording.fileno()}"
        self._orders = os.pipe()
        self._answers = os.pipe()
        self._pid = 0
        self._threads: set[int] = set()
        self._tools: list[Tool] = []

    def begin(self, pid: int, tid: int) -> None:
        self._pid = pid
        self._threads = set(thread_ids(pid))
        orders, answers = self._orders[0], self._answers[1]
        os.set_blocking(self._answers[0], False)
        # Without events until it is told so. Names of functions are not asked for: looking them up takes its time.
        options = ["-q", "-N", "-B", "--no-bpf-event", "-D", "-1", "--control", f"fd:{orders},{answers}"]
        command = ["perf", "record", *options, "-e", _EVENTS, "-p", str(pid), "-o", self._path, f"--max-size={_MOST}"]
        tool = Tool(command, (orders, answers, self._recording.fileno()))
        self._tools.append(tool)
        os.write(self._orders[1], b"enable\n")
        tool.await_ready(self._has_answered)

    def tick(self) -> None:
        """It needs none."""

    def end(self, probe: Probe) -> Seen:
        os.write(self._orders[1], b"disable\n")
        recording = self._tools[0]
        recording.await_ready(self._has_answered)
        # Child processes are recorded, too, but they are not this process.
        threads = self._threads | set(thread_ids(self._pid))
        recording.ask_to_end()
        recording.finished()
        summing = Tool(["perf", "trace", "-s", "-f", "-i", self._path], (self._recording.fileno(),))
        self._tools.append(summing)
        text = summing.finished()
        self.drop()
        if "Summary of events" not in text:
            raise Unavailable(f"perf trace told nothing: {' '.join(text.split())[:200] or 'no output'}.")
        remarks = ("perf lost some system calls, so that their time is missing.",) if _LOST.search(text) else ()
        return Seen(
            {tid: times for tid, times in by_thread(text).items() if tid in threads}, len(threads), remarks=remarks
        )

    def drop(self) -> None:
        while self._tools:
            self._tools.pop().drop()
        if not self._recording.closed:
            self._recording.close()
            for end in (*self._orders, *self._answers):
                os.close(end)

    def _has_answered(self) -> bool:
        try:
            return b"ack" in os.read(self._answers[0], 64)
        except BlockingIOError:
            return False


def by_thread(text: str) -> dict[int, dict[str, float]]:
    """Microseconds by thread and category, from what perf trace -s has written."""
    found: dict[int, dict[str, float]] = {}
    current: dict[str, float] = {}
    for line in text.splitlines():
        thread = _THREAD.match(line)
        if thread is not None:
            current = found.setdefault(int(thread[1]), defaultdict(float))
            continue
        row = _ROW.match(line)
        if row is not None:
            current[categories.of_name(row[1])] += float(row[2]) * 1e3
    return {thread: dict(times) for thread, times in found.items()}
