"""An estimate of where a process's time went, by looking at its threads about each millisecond.

/proc/PID/task/TID/syscall tells what a thread waits in. Of a thread that runs it says nothing, so what running threads
did in the kernel is worked out from what is counted of each: ticks of the clock in the kernel, calls and bytes of read
and write, page faults, and whether the process's address space changed from one look to the next. A thread that was in
one and the same call all the time is left out, as tools that time calls leave it out.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping

from aorta_collectors.numerics.profile.escalation import categories
from aorta_collectors.numerics.profile.escalation.sources import Probe, Seen, Unavailable
from aorta_collectors.numerics.profile.escalation.threads import Usage, thread_ids, usage

_RUNNING = "running"
_NO_CALL = "-1"  # it waits, but for something else: for a page that it touched
_NOTICE_S = 0.02  # how often new threads are looked for
# Microseconds that work in the kernel takes at least.
_PER_CALL, _PER_BYTE, _PER_FAULT = 0.2, 2e-5, 0.25
# Of the time in the kernel, how much has to be explained by what was counted for all of it to be taken for that.
_EXPLAINED = 0.1
# A size that goes up and down all the time is the same in at least every other look.
_ALWAYS = 3.0
_REMARK = (
    "Sampling /proc is an estimate: it cannot tell an ioctl that never waits from other system calls, and a call of "
    "less than a millisecond only by what it reads, writes or maps."
)


class _Watched:
    """One thread, and what was seen of it."""

    def __init__(self, pid: int, tid: int) -> None:
        self.tid = tid
        place = f"/proc/{pid}/task/{tid}"
        self._files = [os.open(f"{place}/{name}", os.O_RDONLY) for name in ("syscall", "wchan")]
        self._io = f"{place}/io"
        self.waited: dict[str, float] = defaultdict(float)
        self.texts: set[str] = set()
        self.began = usage(pid, tid)
        self.io_began = self.io()

    def look(self, by_number: Mapping[int, str], micros: float) -> None:
        """Take what it does now for what it has done for `micros` microseconds.

        Raises:
            OSError: It is gone.
        """
        category, text = self._doing(by_number)
        if len(self.texts) < 2:
            self.texts.add(text)
        if category is not None and micros > 0:
            self.waited[category] += micros

    def _doing(self, by_number: Mapping[int, str]) -> tuple[str | None, str]:
        """The category of the call in which it waits, None if it runs; and the text that says so."""
        try:
            text = os.pread(self._files[0], 200, 0).decode()
        except PermissionError:
            channel = os.pread(self._files[1], 200, 0).decode()
            return (None if channel in ("0", "") else categories.of_channel(channel)), channel
        number = text.partition(" ")[0].strip()
        if number == _RUNNING:
            return None, text
        return ("mmap" if number == _NO_CALL else by_number.get(int(number), categories.OTHER)), text

    def io(self) -> dict[str, int]:
        """Calls and bytes of read and write; empty where the kernel does not count them."""
        try:
            with open(self._io, encoding="ascii") as lines:
                return {name: int(value) for name, value in (line.split(": ") for line in lines)}
        except (OSError, ValueError):
            return {}

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


class ByProc:
    """See sources.Source."""

    # Ticks of the clock come each 10 ms.
    least_us = 200e3

    def __init__(self) -> None:
        self._by_number = categories.by_number()
        self._threads: dict[int, _Watched] = {}
        self._pid = self._tid = 0
        self._began = self._last = self._noticed = 0.0
        self._size = b""
        self._looks = self._changes = 0

    def begin(self, pid: int, tid: int) -> None:
        self._pid, self._tid = pid, tid
        self._notice()
        if tid not in self._threads:
            raise Unavailable("/proc does not show the threads of the process.")
        self._size = self._sized()
        self._began = self._last = self._noticed = time.perf_counter()

    def tick(self) -> None:
        now = time.perf_counter()
        micros, self._last = (now - self._last) * 1e6, now
        for watched in list(self._threads.values()):
            try:
                watched.look(self._by_number, micros)
            except (OSError, ValueError):
                watched.close()
                del self._threads[watched.tid]
        size = self._sized()
        self._looks += 1
        self._changes += size != self._size
        self._size = size
        if now - self._noticed > _NOTICE_S:
            self._noticed = now
            self._notice()

    def end(self, probe: Probe) -> Seen:
        self.tick()
        found: dict[int, dict[str, float]] = {}
        num_threads = 0
        for watched in self._threads.values():
            ended = usage(self._pid, watched.tid)
            if watched.began is None or ended is None:
                continue
            num_threads += 1
            used = ended.since(watched.began)
            if len(watched.texts) > 1 or used.cpu_ns:
                found[watched.tid] = self._times(watched, used)
        looks = self._looks
        self.drop()
        if not num_threads or looks < 2:
            raise Unavailable("Sampling /proc saw too little of the process.")
        return Seen(found, num_threads, remarks=(_REMARK,))

    def drop(self) -> None:
        for watched in self._threads.values():
            watched.close()
        self._threads = {}

    def _times(self, watched: _Watched, used: Usage) -> dict[str, float]:
        """Microseconds by category: of waiting as seen, of running in the kernel as worked out."""
        # Waiting was seen from time to time; how long it was altogether is known.
        waited_us = max(0.0, (self._last - self._began) * 1e6 - (used.cpu_ns + used.delay_ns) / 1e3)
        seen_us = sum(watched.waited.values())
        times = {category: micros * min(1.0, waited_us / seen_us) for category, micros in watched.waited.items()}
        before, after = watched.io_began, watched.io()
        io = {name: after[name] - before.get(name, 0) for name in after}
        least = sum(at_least(io, used.faults).values())
        ticks = used.system_ticks + used.user_ticks
        cpu_us = used.cpu_ns / 1e3
        in_kernel = min(cpu_us, max(least, cpu_us * used.system_ticks / ticks if ticks else 0.0))
        changing = min(1.0, _ALWAYS * self._changes / self._looks) if self._looks else 0.0
        for category, micros in in_kernel_by(in_kernel, io, used.faults, changing).items():
            times[category] = times.get(category, 0.0) + micros
        return times

    def _notice(self) -> None:
        for tid in thread_ids(self._pid):
            if tid not in self._threads:
                try:
                    self._threads[tid] = _Watched(self._pid, tid)
                except OSError:
                    pass  # it has ended in between

    def _sized(self) -> bytes:
        """The size of the address space, in pages, as text."""
        try:
            with open(f"/proc/{self._pid}/statm", "rb") as file:
                return file.read().partition(b" ")[0]
        except OSError:
            return b""


def at_least(io: Mapping[str, int], faults: int) -> dict[str, float]:
    """Microseconds in the kernel that what was counted takes at least, by category.

    Args:
        io: Of /proc/PID/io: syscr, syscw, rchar, wchar.
        faults: Page faults.
    """
    return {
        "read": io.get("syscr", 0) * _PER_CALL + io.get("rchar", 0) * _PER_BYTE,
        "write": io.get("syscw", 0) * _PER_CALL + io.get("wchar", 0) * _PER_BYTE,
        "mmap": faults * _PER_FAULT,
    }


def in_kernel_by(micros: float, io: Mapping[str, int], faults: int, changing: float) -> dict[str, float]:
    """How time in the kernel may be made up.

    Args:
        micros: Processor time in the kernel.
        io, faults: As of `at_least`.
        changing: How likely it is (0 to 1) that what nothing else explains was mapping and unmapping memory.

    Returns:
        Microseconds by category; their sum is `micros`.
    """
    likely = at_least(io, faults)
    rest = max(0.0, micros - sum(likely.values()))
    likely["mmap"] += rest * changing
    rest -= rest * changing
    total = sum(likely.values())
    if total > 0 and total >= _EXPLAINED * micros:
        return {category: micros * part / total for category, part in likely.items()}
    return {**likely, categories.OTHER: rest}
