"""What a source of the breakdown is: something that tells, from the helper, where a process's time went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

#: Stands for all threads but the one that runs the step, where a source can tell only their sum.
THE_OTHERS = 0


class Unavailable(Exception):
    """Something cannot be looked at; says why, in one sentence."""


class Probe(NamedTuple):
    """What one system call has taken.

    Attributes:
        wall_us: Microseconds by the clock on the wall.
        cpu_us: Of the processor, in the thread that made it.
    """

    wall_us: float
    cpu_us: float


class Added(NamedTuple):
    """The same of all that looking has added to a thread."""

    wall_us: float = 0.0
    cpu_us: float = 0.0


class Seen(NamedTuple):
    """What a source has found.

    Attributes:
        by_thread: Microseconds in system calls, by thread and by category (categories.CATEGORIES).
        num_threads: Threads that were looked at.
        added: What looking has cost the thread that runs the step, outside of its calls.
        remarks: What it could not tell, one sentence each.
    """

    by_thread: Mapping[int, Mapping[str, float]]
    num_threads: int
    added: Added = Added()
    remarks: tuple[str, ...] = ()


class Source(Protocol):
    """One way to look, used once.

    Attributes:
        least_us: Microseconds below which a look tells too little.
    """

    least_us: float

    def begin(self, pid: int, tid: int) -> None:
        """Look at a process from now on. Returns when it does, within a time that is bounded.

        Args:
            tid: The thread that runs the step.

        Raises:
            Unavailable: It cannot.
        """

    def tick(self) -> None:
        """Called about each millisecond in between."""

    def end(self, probe: Probe) -> Seen:
        """Look no longer, and leave the process as it was.

        Args:
            probe: What a system call that does nothing (getppid) has taken while the process was looked at.

        Raises:
            Unavailable: Nothing was found out after all.
        """

    def drop(self) -> None:
        """Leave the process as it was, whatever the state. May be called at any time, and more than once."""
