"""How busy the rest of the machine is, so that a measurement can be taken again when it was disturbed."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT = 3, 4


class Others:
    """Cores that everything but this process has used since it was made, stolen time of a virtual machine included."""

    def __init__(self) -> None:
        self._busy, self._own, self._began = _busy_seconds(), time.process_time(), time.perf_counter()

    def cores(self) -> float:
        """Mean number of cores; 0 where the system does not tell. The kernel counts in hundredths of a second."""
        wall = time.perf_counter() - self._began
        others = _busy_seconds() - self._busy - (time.process_time() - self._own)
        return max(0.0, others / wall) if wall > 0 else 0.0


def _busy_seconds() -> float:
    """Seconds since boot that all cores together were not idle; this process's own time where that cannot be known."""
    try:
        # The last two numbers, of guests, are part of the first two.
        ticks = [int(word) for word in _STAT.read_text().partition("\n")[0].split()[1:9]]
    except OSError:
        return time.process_time()
    return (sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]) / os.sysconf("SC_CLK_TCK")
