"""Functions of torch and other libraries that ours stand in the place of, until they are undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aorta_collectors.observe.around import in_place_of


class Patches:
    """Puts functions in the place of others, and takes away those that still stand there.

    Attributes:
        stand: Whether they are in force. Somebody may have wrapped one after us: theirs stays, and ours, inside of it,
            has to fall silent by this.
    """

    def __init__(self) -> None:
        self.stand = False
        self._made: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, around: Callable[[Any], Any], also: Sequence[Any] = ()) -> None:
        """Have `owner.name` be `around(original)`, which calls `original`, a free variable of it, at any rate.

        Does nothing where the owner has no such function of its own.

        Args:
            also: Other owners of the same function by the same name.
        """
        original = vars(owner).get(name)
        if original is None:
            return
        ours = in_place_of(original, around(original))
        for each in (owner, *also):
            if vars(each).get(name) is original:
                self._made.append((each, name, original, ours))
                setattr(each, name, ours)
        self.stand = True

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Each original, and what stands in its place."""
        return [(original, ours) for _, _, original, ours in self._made]

    def undo(self) -> None:
        self.stand = False
        for owner, name, original, ours in reversed(self._made):
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)
        self._made = []
