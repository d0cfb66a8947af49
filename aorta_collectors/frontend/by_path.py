"""The front-end as a file, for interpreters that do not have this package: `python PATH script.py | -m name | -c code`.

A container has it mounted, and an isolated interpreter does not look where it is installed. Nothing of this package's
surroundings comes into sys.path. Any Python may come by here, so this file keeps to what Python 2 understands.
"""

import os
import sys

# Python has put this file's directory first, unless -I or -P said not to.
_HAS_FIRST = not (getattr(sys.flags, "isolated", False) or getattr(sys.flags, "safe_path", False))
if _HAS_FIRST:
    del sys.path[0]

_OLDEST = (3, 10)


def _run_bare():
    # type: () -> None
    """Let an interpreter that is too old for the package run the program as it would have."""
    import subprocess

    version = "{}.{}".format(*sys.version_info[:2])
    sys.stderr.write("aorta-collectors: could not arm: this is Python " + version + ", older than 3.10\n")
    sys.stderr.flush()
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    os.execv(sys.executable, [sys.executable] + flags + sys.argv[1:])  # noqa: RUF005  (Python 2 has no stars)


if __name__ == "__main__":
    if sys.version_info < _OLDEST:
        _run_bare()
    # The package lies around this file, whatever else is installed. Its parts are found through it.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import aorta_collectors  # noqa: F401

    del sys.path[0]

    from aorta_collectors.environment import ARM_VARIABLE, SWITCH_VARIABLE
    from aorta_collectors.frontend.arming import arm_from_environment, let_children_arm
    from aorta_collectors.frontend.program import run_program

    # What `python -m` has there; the program's own form decides what becomes of it.
    sys.path[:0] = [os.getcwd()] if _HAS_FIRST else []

    if os.environ.get(SWITCH_VARIABLE, "").lower() != "off":
        for name in os.environ.get(ARM_VARIABLE, "").split():
            let_children_arm(name, os.environ)
    arm_from_environment()
    run_program(sys.argv[1:], "python " + sys.argv[0])
