"""The front-end's entry point: arm what the environment names, then run the program."""

import sys

# `python -m` has put the working directory first. A script's own path does not have it, so that a tokenize.py lying
# there must not be taken for the standard library's while the front-end is being imported.
_first = [] if sys.flags.isolated or getattr(sys.flags, "safe_path", False) else [sys.path.pop(0)]

from aorta_collectors.frontend.arming import arm_from_environment  # noqa: E402
from aorta_collectors.frontend.program import run_program  # noqa: E402

sys.path[:0] = _first

if __name__ == "__main__":
    arm_from_environment()
    run_program(sys.argv[1:])
