"""Arming a process of its own until it exits. Called once torch has been imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from aorta_collectors.environment import ARMED_VARIABLE
from aorta_collectors.observe.process.ending import Ending, is_below_fork_server
from aorta_collectors.observe.process.hard_exit import before_hard_exit
from aorta_collectors.observe.process.last_status import LastStatus
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.ranks import note_rank
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.observe.process.standalone import StandaloneLaunch

#: Makes the session of a process from the directory that relative paths are meant from, and that for its files; None
#: where nothing is to be observed.
MakeSession = Callable[[Path, Path], ProcessSession | None]


def arm_to_the_end(collector: str, names: ProcessNames, started_in: str, make: MakeSession) -> None:
    """Arm this process until it exits, or, in a fork server, each of its children.

    Args:
        collector: Its name, for what is said where it fails.
        started_in: Working directory of the process when it began. Relative paths are meant from there, or from where
            the standalone launch was started to which the process belongs.
    """
    pid = os.getpid()
    if is_below_fork_server() and _was_set_up(pid):
        # The server trains nothing. It has torch preloaded for its children, who are forks, yet each a new beginning.
        os.register_at_fork(after_in_child=lambda: _arm_child(pid, collector, names, started_in, make))
    else:
        _arm(names, started_in, make)


def _was_set_up(pid: int) -> bool:
    """Whether process `pid` itself was set up for arming at its start, rather than the one that forked it."""
    return os.environ.get(ARMED_VARIABLE, "").partition(":")[0] == str(pid)


def _arm_child(server: int, collector: str, names: ProcessNames, started_in: str, make: MakeSession) -> None:
    if os.getppid() != server:
        return  # a fork that the child has made
    try:
        _arm(names, started_in, make)
    except Exception as error:
        sys.stderr.write(f"aorta-collectors: could not arm {collector}: {type(error).__name__}: {error}\n")


def _arm(names: ProcessNames, started_in: str, make: MakeSession) -> None:
    note_rank(os.environ)
    launch = StandaloneLaunch.of(os.environ, names.run_id_variable)
    home = Path(started_in if launch is None else launch.directory)
    session = make(home, home / (os.environ.get(names.directory_variable) or names.default_directory))
    if session is None:
        return
    session.arm()
    Ending(session.close)
    before_hard_exit(session)
    LastStatus.decide(session.exit_status)
