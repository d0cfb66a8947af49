"""One file of lines of a run that may never end: the fuller it gets, the fewer steps are written.

So a long run is told of to its end, and its beginning in full. Steps of a kind that one looks for, such as those with a
bad value, are always written as long as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from aorta_collectors.observe.files import RecordFile

#: Of each file. At some 400 bytes a line, 100 MB.
MOST_LINES = 250_000

#: One step in so many is written while a file is no fuller than this share.
_EVERY = ((0.5, 1), (0.75, 10), (0.9, 100), (1.0, 1000))


T = TypeVar("T")


def _is_never(step: int) -> bool:
    return False


class Lines:
    """
    Args:
        kind: Of its lines, as in its name.
        most: Lines that it may have.
        thins: Whether steps are left out when it gets full.
        apart: Every how many steps there are lines, but for special ones.
        warn: Told when that begins.

    Attributes:
        dropped: Lines that were left out, or that there was no room for.
    """

    def __init__(
        self,
        kind: str,
        file: RecordFile,
        warn: Callable[[str], None],
        *,
        thins: bool = True,
        apart: int = 1,
        most: int = MOST_LINES,
    ) -> None:
        self.file = file
        self.dropped = 0
        self._kind = kind
        self._most = most
        self._warn = warn
        self._thins = thins
        self._apart = apart
        self._is_thinned = False

    def keeps(self, step: int) -> bool:
        """Whether lines of an ordinary step are written now."""
        every = self._every()
        if every > 1 and not self._is_thinned:
            self._is_thinned = True
            apart = every * self._apart
            self._warn(
                f"there are {self.file.written} lines of {self._kind}: from step {step} on, those of every {apart}th "
                "step are written, and of fewer when there are more"
            )
        return step // self._apart % every == 0

    def append(
        self, found: Iterable[tuple[int, T]], encode: Callable[[T], str], is_special: Callable[[int], bool] = _is_never
    ) -> None:
        """Write lines.

        Args:
            found: What they are of, each with its step.
            encode: Makes a line.
            is_special: Tells steps that are written as long as there is room.
        """
        kept, number, keeps = [], 0, dict[int, bool]()
        for step, content in found:
            number += 1
            if step not in keeps:
                keeps[step] = self.keeps(step) or is_special(step)
            if keeps[step]:
                kept.append(content)
        kept = kept[: max(0, self._most - self.file.written)]
        self.dropped += number - len(kept)
        self.file.append([encode(content) for content in kept])

    def add_last(self, line: str) -> None:
        """One more, also where there is no room."""
        self.file.append([line])

    def _every(self) -> int:
        if not self._thins:
            return 1
        return next((every for share, every in _EVERY if self.file.written <= share * self._most), _EVERY[-1][1])
