"""The standalone front-end: `python -m aorta_collectors.memory [--scope layers.*] [...] script.py [args...]`."""

import sys

# `python -m` has put the working directory first. A script's own path does not have it, so that a tokenize.py lying
# there must not be taken for the standard library's while this is being imported.
_first = [] if sys.flags.isolated or getattr(sys.flags, "safe_path", False) else [sys.path.pop(0)]

from aorta_collectors.memory.standalone import standalone  # noqa: E402

sys.path[:0] = _first


def main(words: list[str], command: str = "python -m aorta_collectors.memory") -> None:
    """Arm, then run the program that `words` name.

    Args:
        command: How the user called this.
    """
    standalone().run(words, command)


if __name__ == "__main__":
    main(sys.argv[1:])
