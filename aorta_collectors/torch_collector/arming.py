"""Arming a torch program's process from the variables of a collector. Called once torch has been imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aorta_collectors.observe.process.arming import arm_to_the_end
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.torch_collector.configuration import Configuration

C = TypeVar("C", bound=Configuration)
#: Makes a session from what is in force, and how to get at the directory for its files and at the trial's run id.
MakeSession = Callable[[C, Callable[[], Path], Callable[[], "str | None"]], ProcessSession]


def arm_configured(
    collector: str, process: ProcessNames, config: type[C], started_in: str, make: MakeSession[C]
) -> None:
    """Arm this process until it exits, where its variables ask for anything.

    Args:
        collector: Its name, for what is said where it fails.
        started_in: Working directory of the process when it began.
        make: Not called where nothing is asked for: all that stands on torch may be imported there. The session has to
            watch the process to its end.
    """

    def session(home: Path, directory: Path) -> ProcessSession | None:
        environ = os.environ
        found = config.configured(environ)
        if found.asks_for_nothing:
            return None
        return make(found, lambda: directory, lambda: environ.get(process.run_id_variable))

    arm_to_the_end(collector, process, started_in, session)
