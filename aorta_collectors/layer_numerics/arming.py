"""Arming layer_numerics in a process of its own, from NANLOG_* variables. Called once torch has been imported."""

from __future__ import annotations

import os
from pathlib import Path

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.names import CONFIG_FILE_VARIABLE, PROCESS, RUN_ID_VARIABLE
from aorta_collectors.layer_numerics.session import Session
from aorta_collectors.observe.process.arming import arm_to_the_end


def arm(started_in: str) -> None:
    """Arm this process until it exits.

    Args:
        started_in: Working directory of the process when it began.
    """
    arm_to_the_end("layer_numerics", PROCESS, started_in, _session)


def _session(home: Path, directory: Path) -> Session:
    environ = os.environ
    config = Config.from_environment(environ, environ.get(CONFIG_FILE_VARIABLE), home)
    return Session(config, lambda: directory, lambda: environ.get(RUN_ID_VARIABLE), to_the_end=True)
