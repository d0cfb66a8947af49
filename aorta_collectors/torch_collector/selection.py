"""Which steps and which modules options name: 3,1-5,10- and shell patterns of paths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

#: The model itself, in a pattern.
ROOT = "(root)"


def step_range(word: str) -> tuple[int, float]:
    """The first and the last step of 3, 1-5, or 10-, whose last is infinite."""
    first, dash, last = word.partition("-")
    if not dash:
        return int(first), int(first)
    return int(first), int(last) if last else math.inf


def names_step(words: Iterable[str] | None, step: int) -> bool:
    """Whether a step is meant. Without words all are, and what comes before the first as well."""
    return words is None or any(first <= step <= last for first, last in map(step_range, words))


def faults_of_steps(words: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    """What the schema cannot say of the option `steps`."""
    for word in words or ():
        first, last = step_range(word)
        if last < first:
            yield "steps", f"{word} ends before it begins; a range is such as 1-5"


def matching(patterns: Iterable[str] | None, path: str) -> list[str]:
    """The patterns that a module is meant by.

    Args:
        path: Below the model; empty for that itself.
    """
    return [pattern for pattern in patterns or () if fnmatchcase(path or ROOT, pattern)]
