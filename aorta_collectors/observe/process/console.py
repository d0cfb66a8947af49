"""What a person reads on stderr: lines in the stock logger's form."""

from __future__ import annotations

import os
import sys
import time


def say(speaker: str, message: str, rank: int | str) -> None:
    """One line. A closed, full or replaced stderr is the program's business: then nothing is said.

    Args:
        speaker: Whose line it is, in a word.
    """
    try:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} [PID={os.getpid()} rank={rank}] {speaker}: {message}\n")
        sys.stderr.flush()
    except Exception:
        pass
