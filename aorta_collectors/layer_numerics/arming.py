"""Arming layer_numerics in a process of its own, from NANLOG_* variables. Called once torch has been imported."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.session import Session

#: Set by a sweep: the trial whose evidence this process writes.
RUN_ID_VARIABLE = "NANLOG_RUN_ID"
#: Set by --config.
CONFIG_FILE_VARIABLE = "NANLOG_CONFIG_FILE"
DEFAULT_DIRECTORY = "nan_logger_out"
ARM_FUNCTION = "aorta_collectors.layer_numerics.arming:arm"


def arm() -> None:
    """Arm this process until it exits."""
    environ = os.environ
    # Absolute now: the program may change its working directory.
    directory = Path(environ.get("NANLOG_DIR") or DEFAULT_DIRECTORY).absolute()
    config = Config.from_environment(environ, environ.get(CONFIG_FILE_VARIABLE))
    session = Session(config, lambda: directory, environ.get(RUN_ID_VARIABLE))
    session.arm()
    atexit.register(lambda: session.close(_how_it_ended()))


def _how_it_ended() -> str:
    """The interpreter keeps an uncaught exception in sys.last_value; exit handlers run after that."""
    error = getattr(sys, "last_value", None)
    return "exit" if error is None else describe_exception(error)


def describe_exception(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
