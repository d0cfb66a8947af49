"""How busy other processes keep the machine, so that what was measured meanwhile can be taken for what it is."""

from __future__ import annotations

import os
import time

_IDLE, _IOWAIT = 3, 4
_QUIET = 0.05  # of the machine's cores


class Others:
    """Cores that all but this process have used since it was made, also those that a virtual machine did not get."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._began = _busy_s(), time.process_time(), time.perf_counter()

    def cores(self) -> float:
        """Their mean number; 0 where the system does not tell. The kernel counts in hundredths of a second."""
        wall_s = time.perf_counter() - self._began
        busy_s = _busy_s()
        if self._busy_s is None or busy_s is None or wall_s <= 0:
            return 0.0
        return max(0.0, (busy_s - self._busy_s - (time.process_time() - self._own_s)) / wall_s)


def is_quiet(cores: float) -> bool:
    """Whether others that use so many leave the machine to us."""
    return cores <= _QUIET * (os.cpu_count() or 1)


def _busy_s() -> float | None:
    """Seconds since boot that all cores together were not idle."""
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as lines:
            # The last two numbers, of guests, are part of the first two.
            ticks = [int(word) for word in lines.readline().split()[1:9]]
        return (sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
