"""Which steps are looked at: those that are asked for, and of a run that goes on and on ever fewer."""

from __future__ import annotations

from collections.abc import Callable

from aorta_collectors.memory.config import Config

#: Of one file: at some 600 bytes a line, 120 MB.
MOST_LINES = 200_000
# One step in so many is looked at while the file is no fuller than this share; none, where it is full.
_EVERY = ((0.5, 1), (0.75, 10), (0.9, 100), (1.0, 1000))


class Steps:
    """
    Args:
        warn: Told when steps are left out since the file gets full.

    Attributes:
        left_out: Steps that were asked for and not looked at.
    """

    def __init__(self, config: Config, warn: Callable[[str], None], most: int = MOST_LINES) -> None:
        self._config = config
        self._warn = warn
        self._most = most
        self._every = 1
        self.left_out = 0

    def looks_at(self, step: int, written: int) -> bool:
        """Whether a step that begins is looked at.

        Args:
            written: Lines of the file so far.
        """
        if not self._config.looks_at_step(step):
            return False
        every = next((every for share, every in _EVERY if written < share * self._most), 0)
        if every != self._every:
            self._every = every
            which = f"every {every}th step is" if every else "no step is"
            self._warn(f"there are {written} points: from step {step} on, {which} looked at")
        looks = bool(every) and step % every == 0
        self.left_out += not looks
        return looks
