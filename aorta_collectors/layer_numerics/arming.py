"""Arming layer_numerics in a process of its own, from NANLOG_* variables. Called once torch has been imported."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.names import CONFIG_FILE_VARIABLE, DEFAULT_DIRECTORY, RUN_ID_VARIABLE
from aorta_collectors.layer_numerics.session import Session


def arm(started_in: str) -> None:
    """Arm this process until it exits.

    Args:
        started_in: Working directory of the process when it began; relative paths are meant from there.
    """
    environ = os.environ
    directory = Path(started_in, environ.get("NANLOG_DIR") or DEFAULT_DIRECTORY)
    config = Config.from_environment(environ, environ.get(CONFIG_FILE_VARIABLE), Path(started_in))
    session = Session(config, lambda: directory, lambda: environ.get(RUN_ID_VARIABLE))
    session.arm()
    atexit.register(lambda: session.close(_how_it_ended()))


def _how_it_ended() -> str:
    """The interpreter keeps an uncaught exception in sys.last_value; exit handlers run after that."""
    error = getattr(sys, "last_value", None)
    return "exit" if error is None else f"{type(error).__name__}: {error}"
