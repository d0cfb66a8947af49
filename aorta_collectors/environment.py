"""Variables by which a sweep and the programs that it starts talk to each other. Imports nothing."""

from __future__ import annotations

import os

#: Names the functions that arm collectors in a process, as "module:function", separated by spaces.
ARM_VARIABLE = "AORTA_COLLECTORS_ARM"
#: "PID:names" of what has been armed in process PID. Children inherit it, and have another PID.
ARMED_VARIABLE = "AORTA_COLLECTORS_ARMED"
#: "off" lets a program run uninstrumented.
SWITCH_VARIABLE = "AORTA_COLLECTORS"


def bootstrap_directory() -> str:
    """The directory whose sitecustomize.py arms collectors in any Python that has it on PYTHONPATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "frontend", "site")


def whole_number(name: str, default: int) -> int:
    """The environment's integer >= 0 of this name; `default` where it is unset or none."""
    try:
        return max(0, int(os.environ.get(name, default)))
    except ValueError:
        return default
