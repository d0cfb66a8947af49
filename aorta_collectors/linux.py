"""What Linux tells of processes: their state, their parent, and the signal that ended one."""

from __future__ import annotations

import signal
from pathlib import Path


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: state, parent, group, session, ... (proc(5)).

    Raises:
        OSError: There is no such process any more, or it may not be looked at.
    """
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The command's name comes second, in parentheses, and may have spaces and parentheses in it.
    return text.rpartition(")")[2].split()


def signal_name(number: int) -> str:
    """Such as "SIGKILL"; "signal 42" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
