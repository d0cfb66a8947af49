"""System calls timed by strace.

It stops a thread at the beginning and at the end of each call, some 20 to 50 us together, so it makes a program with
many of them slower, and short calls seem longer. Two run side by side, one for the thread that runs the step and one
for the others, since each tells only the sum over all that it watches. None follows new threads or child processes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from aorta_collectors.numerics.profile.escalation import categories
from aorta_collectors.numerics.profile.escalation.sources import THE_OTHERS, Added, Probe, Seen, Unavailable
from aorta_collectors.numerics.profile.escalation.threads import thread_ids
from aorta_collectors.numerics.profile.escalation.tools import Tool

# % time, seconds, usecs/call, calls, errors (may be missing), name.
_ROW = re.compile(r"^\s*[\d.]+\s+([\d.]+)\s+\d+\s+(\d+)\s+(?:\d+\s+)?([a-z]\w*)$", re.MULTILINE)
_TOTAL = "total"
# The call that does nothing.
_PROBE = "getppid"
# Calls of the thread that asks for the look: they wait until it begins, measure what strace costs, and end it; and such
# as do nothing, so that their time is strace's. Hooks ask for the process's number.
_OURS = ("restart_syscall", "clock_gettime", "getpid", "gettid")
_OURS_IF_ONCE = ("poll", "ppoll", "recvfrom", "sendto")


class ByStrace:
    """See sources.Source."""

    least_us = 50e3

    def __init__(self) -> None:
        self._tools: dict[int, Tool] = {}
        self._num_threads = 1
        self._tid = 0

    def begin(self, pid: int, tid: int) -> None:
        tracer = traced_by(pid)
        if tracer:
            raise Unavailable(f"strace cannot look at a process that process {tracer} already traces.")
        self._tid = tid
        others = [thread for thread in thread_ids(pid) if thread != tid]
        self._num_threads = 1 + len(others)
        if others:
            self._watch(THE_OTHERS, others)
        # Last, so that the thread that runs the step is watched for the shortest time before it goes on.
        self._watch(tid, [tid])

    def tick(self) -> None:
        """It needs none."""

    def end(self, probe: Probe) -> Seen:
        for tool in self._tools.values():
            tool.ask_to_end()
        rows = {thread: calls_by_name(tool.finished()) for thread, tool in self._tools.items()}
        self.drop()
        own = rows[self._tid]
        probes, probes_us = own.pop(_PROBE, (0, 0.0))
        num_calls = sum(calls for calls, _ in own.values())
        for name in _OURS + tuple(name for name in _OURS_IF_ONCE if own.get(name, (0,))[0] == 1):
            own.pop(name, None)
        added = Added()
        if probes:
            added = Added(num_calls * max(0.0, probe.wall_us - probes_us / probes), num_calls * probe.cpu_us)
        return Seen({thread: by_category(calls) for thread, calls in rows.items()}, self._num_threads, added)

    def drop(self) -> None:
        while self._tools:
            self._tools.popitem()[1].drop()

    def _watch(self, name: int, threads: list[int]) -> None:
        # -w: the time that passed, not that of the processor, which says nothing of a call that waits.
        tool = Tool(["strace", "-c", "-w", *(word for thread in threads for word in ("-p", str(thread)))])
        self._tools[name] = tool

        def is_ready() -> bool:
            text = tool.text()
            # A thread that has ended by now is told of, too.
            return text.count(" attached") + text.count("No such process") >= len(threads)

        tool.await_ready(is_ready)


def calls_by_name(text: str) -> dict[str, tuple[int, float]]:
    """How many of each system call there were, and their microseconds, from what strace -c has written."""
    found = {name: (int(calls), float(seconds) * 1e6) for seconds, calls, name in _ROW.findall(text)}
    found.pop(_TOTAL, None)
    return found


def by_category(calls: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Microseconds by category."""
    found: dict[str, float] = defaultdict(float)
    for name, (_, micros) in calls.items():
        found[categories.of_name(name)] += micros
    return dict(found)


def traced_by(pid: int) -> int:
    """The process that traces another one by ptrace; 0 without one."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("TracerPid:")), 0)
    except (OSError, ValueError):
        return 0
