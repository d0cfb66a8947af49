"""The helper: a process of its own that looks at the observed one, since that cannot trace itself, and has its lock.

It is started for the first look (helper_process) and ends when it has not been asked for a while, when the observed
process is gone, or when that closes its end of the socket. It speaks in lines of JSON:

    > {"do": "begin", "tid": 17, "sources": ["perf", "strace", "proc"]}
    < {"source": "strace", "remarks": ["perf is not installed."], "least_us": 20000.0}
    > {"do": "end", "probe": [51.2, 11.0]}
    < {"source": "strace", "step_thread": {"read": 812.0}, "others": {"compute": 40.1}, "threads": 2, ...}

An answer with "error" says why there is none. It imports the standard library and its neighbours alone.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from aorta_collectors.numerics.profile.escalation.by_perf import ByPerf
from aorta_collectors.numerics.profile.escalation.by_proc import ByProc
from aorta_collectors.numerics.profile.escalation.by_strace import ByStrace
from aorta_collectors.numerics.profile.escalation.categories import COMPUTE
from aorta_collectors.numerics.profile.escalation.sources import THE_OTHERS, Probe, Source, Unavailable
from aorta_collectors.numerics.profile.escalation.threads import Usage, computing_us, usages

SOURCES: Mapping[str, Callable[[], Source]] = {"perf": ByPerf, "strace": ByStrace, "proc": ByProc}
_IDLE_MS = 10_000
_POLL_MS = 500  # how often it looks whether the process is still there, where the kernel cannot tell by itself
_TICK_MS = 1


def main(pid: int, fd: int) -> None:
    """Serve the process `pid` over the socket `fd`, in a process of our own that nobody waits for."""
    if os.fork():
        os._exit(0)
    os.setsid()  # what ends the program's terminal or process group comes to us by the program's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=fd)
    _Server(pid, channel).serve()


class _Server:
    def __init__(self, pid: int, channel: socket.socket) -> None:
        self._pid = pid
        self._channel = channel
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._end_of_process: int | None = None
        try:
            self._end_of_process = os.pidfd_open(pid)
            self._poll.register(self._end_of_process, select.POLLIN)
        except (AttributeError, OSError):
            pass  # a kernel before 5.3
        self._useless: dict[str, str] = {}  # sources that have failed, and why
        self._source: Source | None = None
        self._name = ""
        self._tid = 0
        self._before: dict[int, Usage] = {}
        self._began_ns = 0
        self._unread = b""

    def serve(self) -> None:
        try:
            self._say({"pid": os.getpid()})
            while (asked := self._next()) is not None:
                self._say(self._answer(asked))
        except OSError:
            pass  # the other end is gone
        finally:
            self._drop()

    def _next(self) -> dict[str, Any] | None:
        """What is asked next; None when there is nothing more to do."""
        idle = 0
        while b"\n" not in self._unread:
            wait = _TICK_MS if self._source is not None else _POLL_MS
            ready = self._poll.poll(wait)
            if any(fd != self._channel.fileno() for fd, _ in ready) or not os.path.exists(f"/proc/{self._pid}"):
                return None
            if ready:
                received = self._channel.recv(65536)
                if not received:
                    return None
                self._unread += received
            elif self._source is not None:
                self._source.tick()
            else:
                idle += wait
                if idle >= _IDLE_MS:
                    return None
        line, _, self._unread = self._unread.partition(b"\n")
        asked: dict[str, Any] = json.loads(line)
        return asked

    def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._begin(asked) if asked["do"] == "begin" else self._end(Probe(*asked["probe"]))
        except Unavailable as reason:
            self._drop()
            return {"error": str(reason)}
        except Exception as error:  # whatever it is, the other side waits for an answer
            self._drop()
            return {"error": f"The look at the process failed: {type(error).__name__}: {error}."}

    def _begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self._drop()
        self._tid = int(asked["tid"])
        remarks: list[str] = []
        for name in asked["sources"]:
            if name in self._useless:
                remarks.append(self._useless[name])
                continue
            source: Source | None = None
            try:
                source = SOURCES[name]()
                source.begin(self._pid, self._tid)
            except (Unavailable, OSError) as reason:
                self._useless[name] = str(reason) if isinstance(reason, Unavailable) else f"{name} failed: {reason}."
                remarks.append(self._useless[name])
                if source is not None:
                    source.drop()
                continue
            self._source, self._name = source, name
            self._before, self._began_ns = usages(self._pid), time.perf_counter_ns()
            return {"source": name, "remarks": remarks, "least_us": source.least_us}
        return {"error": " ".join(remarks)}

    def _end(self, probe: Probe) -> dict[str, Any]:
        source = self._source
        if source is None:
            raise Unavailable("No look at the process had begun.")
        wall_us = (time.perf_counter_ns() - self._began_ns) / 1e3
        after = usages(self._pid)
        try:
            seen = source.end(probe)
        except Unavailable as reason:
            self._useless[self._name] = str(reason)  # the next look is another's
            raise
        self._source = None
        used = {tid: now.since(self._before.get(tid, Usage())) for tid, now in after.items()}
        step_used = used.pop(self._tid, Usage())
        if THE_OTHERS in seen.by_thread:
            running = [each for each in used.values() if each.cpu_ns]
            used = {THE_OTHERS: functools.reduce(Usage.with_, running, Usage())}
            others_wall_us = wall_us * len(running)
        else:
            others_wall_us = wall_us
        others: dict[str, float] = defaultdict(float)
        for tid, its in used.items():
            calls = seen.by_thread.get(tid, {})
            for category, micros in calls.items():
                others[category] += micros
            others[COMPUTE] += computing_us(others_wall_us, its, sum(calls.values()))
        step_calls = seen.by_thread.get(self._tid, {})
        return {
            "source": self._name,
            "step_thread": step_calls,
            "step_usage": step_used,
            "others": others,
            "threads": seen.num_threads,
            "added": seen.added,
            "remarks": list(seen.remarks),
        }

    def _drop(self) -> None:
        if self._source is not None:
            self._source.drop()
            self._source = None

    def _say(self, what: Mapping[str, Any]) -> None:
        self._channel.sendall(json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
