"""The `steps` filter: which spans are written, and which of its words matched nothing."""

from __future__ import annotations

from collections.abc import Sequence

_ALWAYS = ("step", "process")
_MOST_KNOWN = 10_000  # a program may name its own steps as it likes


class StepsFilter:
    """Words, in any case: each the name of a step, or a part of a module's path or class. Without any, all is kept.

    Args:
        words: As the option has them.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = {word: word.casefold() for word in words}
        self._matched: set[str] = set()
        self._known: dict[tuple[str, str, str], bool] = {}

    def of_step(self, name: str) -> frozenset[str]:
        """The words that are the name of a step."""
        told = name.casefold()
        return frozenset(word for word, wanted in self._words.items() if wanted == told)

    def of_module(self, layer: str, module_type: str) -> frozenset[str]:
        """The words that are part of a module's path or class."""
        layer, module_type = layer.casefold(), module_type.casefold()
        return frozenset(word for word, wanted in self._words.items() if wanted in layer or wanted in module_type)

    def ran(self, words: frozenset[str]) -> None:
        """Something that these words fit has run."""
        self._matched |= words

    def keeps(self, name: str, kind: str, layer: str) -> bool:
        """Whether a span is written. It has run, then."""
        if not self._words or kind in _ALWAYS:
            return True
        key = (name, kind, layer)
        kept = self._known.get(key)
        if kept is None:
            words = self.of_step(name) | self.of_module(layer, name if kind in ("layer", "brick") else "")
            self.ran(words)
            kept = bool(words)
            if len(self._known) < _MOST_KNOWN:
                self._known[key] = kept
        return kept

    @property
    def unmatched(self) -> list[str]:
        """Words that fit nothing that has run so far."""
        return [word for word in self._words if word not in self._matched]
