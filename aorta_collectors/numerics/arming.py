"""Arming numerics in a process of its own, from NUMERICS_* variables. Called once torch has been imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aorta_collectors.numerics.config import OPTIONS_SCHEMA, Config
from aorta_collectors.numerics.names import PREFIX, PROCESS, RUN_ID_VARIABLE
from aorta_collectors.numerics.options import without_effect
from aorta_collectors.observe.process.arming import arm_to_the_end
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.schema_check import load_schema


def arm(started_in: str) -> None:
    """Arm this process until it exits.

    Args:
        started_in: Working directory of the process when it began.
    """
    arm_to_the_end("numerics", PROCESS, started_in, _session)


def _session(home: Path, directory: Path) -> ProcessSession | None:
    environ = os.environ
    config = configured(environ)
    if config.asks_for_nothing:
        return None
    # All that stands on torch is imported for those alone who want something.
    from aorta_collectors.numerics.session import Session

    return Session(config, lambda: directory, lambda: environ.get(RUN_ID_VARIABLE), to_the_end=True)


def configured(environ: Mapping[str, str]) -> Config:
    """The configuration that variables ask for. What cannot be honoured is among its warnings."""
    config = Config.from_environment(environ)
    given = [name for name in load_schema(OPTIONS_SCHEMA)["properties"] if PREFIX + name.upper() in environ]
    faults = (f"{PREFIX}{name.upper()} {fault}" for name, fault in without_effect(config, given))
    return replace(config, warnings=(*config.warnings, *faults))
