"""The front-end's entry point: arm what the environment names, then run the program."""

import sys

from aorta_collectors.frontend.arming import arm_from_environment
from aorta_collectors.frontend.program import run_program

if __name__ == "__main__":
    arm_from_environment()
    run_program(sys.argv[1:])
