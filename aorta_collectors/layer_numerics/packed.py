"""The __main__ of the single file that `aorta-collectors pack` makes: takes the package from that file, and runs."""

import os
import shlex
import sys

# Python has put the file first in sys.path. The rest of the package is imported when the program may be elsewhere.
sys.path[0] = os.path.abspath(sys.path[0])

import aorta_collectors  # noqa: E402, F401  # its parts are found through it, without an entry in sys.path

# What `python -m` has there, and the program another.
sys.path[:1] = [] if sys.flags.isolated or getattr(sys.flags, "safe_path", False) else [os.getcwd()]

from aorta_collectors.layer_numerics.__main__ import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:], f"python {shlex.quote(sys.argv[0])}")
