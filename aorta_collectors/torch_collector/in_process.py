"""Sessions of workloads inside the host's process: armed where torch has been imported, closed when those end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.api import Capture, WorkloadStopped
from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.observe.process.ending import described

if TYPE_CHECKING:
    from aorta_collectors.observe.process.session import ProcessSession

#: Makes a session, given how to get at the directory for its files and at the trial's run id.
MakeSession = Callable[[Callable[[], Path], Callable[[], "str | None"]], "ProcessSession"]


@contextlib.contextmanager
def armed_in_process(
    collector: str,
    make: MakeSession,
    capture: Callable[[], Capture],
    stopped: Callable[[Any], str | None] = lambda session: None,
) -> Iterator[None]:
    """A context in which a workload of this process is observed.

    Args:
        collector: Its name, for what is said where it cannot be armed.
        make: Called where torch has been imported, by the workload itself.
        capture: As `Collector.armed` is given it.
        stopped: Says of a closed session how it has ended the workload; None where it has not.

    Raises:
        WorkloadStopped: On leaving it, where a session has ended the workload.
    """
    sessions: list[ProcessSession] = []

    def arm() -> None:
        try:
            session = make(lambda: Path(capture().artifacts), lambda: capture().run_id)
            session.arm()
            sessions.append(session)
        except Exception as error:  # within the workload's own import of torch
            sys.stderr.write(f"aorta-collectors: could not arm {collector}: {type(error).__name__}: {error}\n")

    watch = ImportWatch("torch", arm)
    watch.start()
    ended_by, failure = "exit", None
    try:
        yield
    except BaseException as error:
        ended_by, failure = described(error), error
        raise
    finally:
        watch.stop()
        for session in sessions:
            session.close(ended_by)
            told = stopped(session)
            if told is not None:  # also of a workload that has survived it
                raise WorkloadStopped(told) from failure
