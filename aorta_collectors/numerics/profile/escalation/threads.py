"""Threads of a process as /proc tells of them: which there are, and what processor time they have had."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What a thread has used since it began, or between two points in time.

    Attributes:
        cpu_ns: Processor time in nanoseconds.
        delay_ns: Nanoseconds in which it could have run, but another ran.
        user_ticks, system_ticks: The processor time by where it was spent, in ticks of the clock.
        faults: Page faults.
    """

    cpu_ns: int = 0
    delay_ns: int = 0
    user_ticks: int = 0
    system_ticks: int = 0
    faults: int = 0

    def since(self, before: Usage) -> Usage:
        return Usage(*(now - then for now, then in zip(self, before, strict=True)))

    def with_(self, other: Usage) -> Usage:
        """Of both together."""
        return Usage(*(one + another for one, another in zip(self, other, strict=True)))


def thread_ids(pid: int) -> list[int]:
    """Those of a process; none where it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def usage(pid: int, tid: int) -> Usage | None:
    """What one thread has used; None where it is gone."""
    place = Path(f"/proc/{pid}/task/{tid}")
    try:
        # The command's name comes in parentheses, and may have parentheses in it.
        fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    faults, user, system = int(fields[7]) + int(fields[9]), int(fields[11]), int(fields[12])
    try:
        cpu_ns, delay_ns = map(int, (place / "schedstat").read_text().split()[:2])
    except (OSError, ValueError):
        cpu_ns, delay_ns = (user + system) * _NS_PER_TICK, 0  # a kernel without schedstat
    return Usage(cpu_ns, delay_ns, user, system, faults)


def usages(pid: int) -> dict[int, Usage]:
    """Of all threads that there are."""
    found = {tid: usage(pid, tid) for tid in thread_ids(pid)}
    return {tid: used for tid, used in found.items() if used is not None}


def computing_us(wall_us: float, used: Usage, in_calls_us: float) -> float:
    """Microseconds of processor time that a thread has spent outside of system calls.

    There it either runs or is kept from running, and is kept from it as often as in calls.

    Args:
        wall_us: Of the clock on the wall.
        in_calls_us: Of these, in system calls, running or waiting.
    """
    cpu_us, delay_us = used.cpu_ns / 1e3, used.delay_ns / 1e3
    if cpu_us <= 0:
        return 0.0
    # A thread that waits for a page that it has touched is in no call either, but has no processor time for that.
    return min(cpu_us, max(0.0, wall_us - in_calls_us) * cpu_us / (cpu_us + delay_us))
