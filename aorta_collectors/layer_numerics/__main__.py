"""The standalone front-end: `python -m aorta_collectors.layer_numerics [--config spec.json] script.py [args...]`."""

import os
import sys

# `python -m` has put the working directory first. A script's own path does not have it, so that a tokenize.py lying
# there must not be taken for the standard library's while this is being imported.
_first = [] if sys.flags.isolated or getattr(sys.flags, "safe_path", False) else [sys.path.pop(0)]

from aorta_collectors.frontend.standalone import Standalone  # noqa: E402
from aorta_collectors.layer_numerics.names import ARM_FUNCTION, CONFIG_FILE_VARIABLE, RUN_ID_VARIABLE  # noqa: E402
from aorta_collectors.observe.process.standalone import StandaloneLaunch  # noqa: E402

sys.path[:0] = _first

_HELP = """Runs a program, and the Python processes that it starts, with the per-layer numerics logger armed, and leaves
layers_rank<N>.jsonl and summary_rank<N>.json in NANLOG_DIR (default nan_logger_out). Configuration: --config,
NANLOG_SPEC_FILE, NANLOG_SPEC or flat NANLOG_* variables.

example: NANLOG_DIR=out NANLOG_SAMPLE_EVERY=1 COMMAND train.py --lr 2
"""


def main(words: list[str], command: str = "python -m aorta_collectors.layer_numerics") -> None:
    """Arm, then run the program that `words` name.

    Args:
        command: How the user called this.
    """
    Standalone(
        arm_function=ARM_FUNCTION,
        options={"--config": lambda value: os.environ.update({CONFIG_FILE_VARIABLE: value})},
        needs={"--config": "a file"},
        synopsis="[--config spec.json]",
        help=_HELP,
        begin=lambda: StandaloneLaunch.begin(os.environ, RUN_ID_VARIABLE),
    ).run(words, command)


if __name__ == "__main__":
    main(sys.argv[1:])
