"""Arming layer_numerics in a process of its own, from NANLOG_* variables. Called once torch has been imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aorta_collectors.environment import ARMED_VARIABLE
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.ending import Ending, is_below_fork_server
from aorta_collectors.layer_numerics.hard_exit import before_hard_exit
from aorta_collectors.layer_numerics.names import CONFIG_FILE_VARIABLE, DEFAULT_DIRECTORY, RUN_ID_VARIABLE
from aorta_collectors.layer_numerics.ranks import note_rank
from aorta_collectors.layer_numerics.session import Session
from aorta_collectors.layer_numerics.standalone import StandaloneLaunch


def arm(started_in: str) -> None:
    """Arm this process until it exits.

    Args:
        started_in: Working directory of the process when it began. Relative paths are meant from there, or from where
            the standalone launch was started to which the process belongs.
    """
    pid = os.getpid()
    if is_below_fork_server() and _was_set_up(pid):
        # The server trains nothing. It has torch preloaded for its children, who are forks, yet each a new beginning.
        os.register_at_fork(after_in_child=lambda: _arm_child(pid, started_in))
    else:
        _arm(started_in)


def _was_set_up(pid: int) -> bool:
    """Whether process `pid` itself was set up for arming at its start, rather than the one that forked it."""
    return os.environ.get(ARMED_VARIABLE, "").partition(":")[0] == str(pid)


def _arm_child(server: int, started_in: str) -> None:
    if os.getppid() != server:
        return  # a fork that the child has made
    try:
        _arm(started_in)
    except Exception as error:
        sys.stderr.write(f"aorta-collectors: could not arm layer_numerics: {type(error).__name__}: {error}\n")


def _arm(started_in: str) -> None:
    environ = os.environ
    note_rank(environ)
    launch = StandaloneLaunch.of(environ)
    home = started_in if launch is None else launch.directory
    directory = Path(home, environ.get("NANLOG_DIR") or DEFAULT_DIRECTORY)
    config = Config.from_environment(environ, environ.get(CONFIG_FILE_VARIABLE), Path(home))
    session = Session(config, lambda: directory, lambda: environ.get(RUN_ID_VARIABLE), to_the_end=True)
    session.arm()
    Ending(session.close)
    before_hard_exit(session)
