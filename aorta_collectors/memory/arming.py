"""Arming memory in a process of its own, from MEMORY_* variables. Called once torch has been imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aorta_collectors.memory.config import Config
from aorta_collectors.memory.names import PROCESS
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.torch_collector.arming import arm_configured


def arm(started_in: str) -> None:
    """Arm this process until it exits.

    Args:
        started_in: Working directory of the process when it began.
    """
    arm_configured("memory", PROCESS, Config, started_in, _session)


def _session(config: Config, directory: Callable[[], Path], run_id: Callable[[], str | None]) -> ProcessSession:
    # All that stands on torch is imported for those alone who want something.
    from aorta_collectors.memory.session import Session

    return Session(config, directory, run_id, to_the_end=True)
