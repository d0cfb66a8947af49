"""The standalone front-end: `python -m aorta_collectors.layer_numerics [--config spec.json] script.py [args...]`."""

import os
import sys

# `python -m` has put the working directory first. A script's own path does not have it, so that a tokenize.py lying
# there must not be taken for the standard library's while this is being imported.
_first = [] if sys.flags.isolated or getattr(sys.flags, "safe_path", False) else [sys.path.pop(0)]

from aorta_collectors.environment import SWITCH_VARIABLE  # noqa: E402
from aorta_collectors.frontend.arming import arm_when_torch_is_there, let_children_arm  # noqa: E402
from aorta_collectors.frontend.program import USAGE, run_program  # noqa: E402
from aorta_collectors.layer_numerics.names import ARM_FUNCTION, CONFIG_FILE_VARIABLE  # noqa: E402
from aorta_collectors.layer_numerics.standalone import StandaloneLaunch  # noqa: E402

sys.path[:0] = _first

_HELP = f"""usage: COMMAND [--config spec.json] {USAGE}

Runs a program, and the Python processes that it starts, with the per-layer numerics logger armed, and leaves
layers_rank<N>.jsonl and summary_rank<N>.json in NANLOG_DIR (default nan_logger_out). Configuration: --config,
NANLOG_SPEC_FILE, NANLOG_SPEC or flat NANLOG_* variables.

example: NANLOG_DIR=out NANLOG_SAMPLE_EVERY=1 COMMAND train.py --lr 2
"""


def main(words: list[str], command: str = "python -m aorta_collectors.layer_numerics") -> None:
    """Arm, then run the program that `words` name.

    Args:
        command: How the user called this.
    """
    # Only what stands before the program is ours; a --config after it is the program's own.
    while words and words[0].startswith("--") and words[0] != "--":
        option, has_value, value = words[0].partition("=")
        if option == "--help":
            print(_HELP.replace("COMMAND", command), end="")
            return
        if option != "--config":
            _refuse(command, f"unknown option {option}")
        if not has_value:
            value = words[1] if len(words) > 1 else ""
            words = words[1:]
        if not value.strip():
            _refuse(command, "--config needs a file")
        os.environ[CONFIG_FILE_VARIABLE] = value.strip()
        words = words[1:]
    if not words or words == ["-h"]:
        sys.stderr.write(_HELP.replace("COMMAND", command))
        raise SystemExit(2)
    if os.environ.get(SWITCH_VARIABLE, "").lower() != "off":
        StandaloneLaunch.begin(os.environ)
        let_children_arm(ARM_FUNCTION, os.environ)
        arm_when_torch_is_there(ARM_FUNCTION)
    run_program(words, f"{command} [--config spec.json]")


def _refuse(command: str, message: str) -> None:
    sys.stderr.write(f"{command}: {message}\n")
    raise SystemExit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
