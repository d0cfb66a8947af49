"""Variables by which a sweep and the programs that it starts talk to each other. Imports nothing of ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

#: Names the functions that arm collectors in a process, as "module:function", separated by spaces.
ARM_VARIABLE = "AORTA_COLLECTORS_ARM"
#: "PID:PROGRAM:names" of what has been armed in process PID while it ran PROGRAM, a random word. Children inherit it,
#: and have another PID; what takes the program's place by exec inherits it too, and has another word.
ARMED_VARIABLE = "AORTA_COLLECTORS_ARMED"
#: "off" lets a program run uninstrumented.
SWITCH_VARIABLE = "AORTA_COLLECTORS"
#: Names a trial to the process of its own that it runs in.
TRIAL_VARIABLE = "AORTA_COLLECTORS_TRIAL"

#: "off" leaves out the HTML report that a sweep writes at its end.
REPORT_VARIABLE = "AORTA_COLLECTORS_REPORT"


def switched_off(environment: Mapping[str, str]) -> bool:
    """Whether the variables that a recipe sets for a cell switch collectors off.

    Only what the recipe controls counts: a variable left over in the operator's shell must not let a request pass.
    """
    return str(environment.get(SWITCH_VARIABLE, "")).lower() == "off"


@contextlib.contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for a while, as those that a recipe sets for a cell: programs are found on that
    PATH then, and processes inherit them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def bootstrap_directory() -> str:
    """The directory whose sitecustomize.py arms collectors in any Python that has it on PYTHONPATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "frontend", "site")


def children_can_arm() -> bool:
    """Whether PYTHONPATH can name that directory: it separates its entries by colons, and knows no quoting."""
    return os.pathsep not in bootstrap_directory()


def whole_number(name: str, default: int) -> int:
    """The environment's integer >= 0 of this name; `default` where it is unset or none."""
    try:
        return max(0, int(os.environ.get(name, default)))
    except ValueError:
        return default
