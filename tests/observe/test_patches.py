"""Standing in the place of functions, and running what is ours inside of them."""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.observe.patches import Patches
from tests.numerics.driving import timeline
from tests.numerics.forked import in_a_fork


def library() -> types.SimpleNamespace:
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    return types.SimpleNamespace(double=double)


def noting(patches: Patches, seen: list[int]) -> Callable[[Any], Any]:
    """What stands around a function and notes what it is called with, as long as it is asked for."""

    def around(original: Any) -> Any:
        def ours(number: int) -> Any:
            if patches.stand:
                seen.append(number)
            return original(number)

        return ours

    return around


def test_ours_stands_until_it_is_undone() -> None:
    made, patches, seen = library(), Patches(), list[int]()
    original = made.double

    public = types.SimpleNamespace(double=original)
    patches.put(made, "double", noting(patches, seen), [public, library()])
    assert public.double is made.double
    patches.put(made, "no_such_function", noting(patches, seen))
    assert (made.double(3), seen, made.double.__doc__) == (6, [3], "Twice as much.")
    assert patches.pairs == [(original, made.double)] * 2
    patches.undo()
    assert made.double is public.double is original


def test_somebody_who_wrapped_it_after_us_stays_and_ours_falls_silent() -> None:
    made, patches, seen = library(), Patches(), list[int]()

    patches.put(made, "double", noting(patches, seen))
    ours = made.double

    def theirs(number: int) -> int:
        result: int = ours(number) + 1
        return result

    made.double = theirs
    patches.undo()
    assert made.double is theirs
    assert (made.double(3), seen) == (7, [])


def test_an_error_of_ours_is_told_once_and_goes_no_further() -> None:
    spent, warned = timeline(), list[str]()
    guarded = Guard(spent, warned.append)

    def broken(number: int) -> None:
        time.sleep(0.01)
        raise ValueError(f"of {number}")

    guarded(broken, 1)
    guarded(broken, 2)
    assert len(warned) == 1
    assert warned[0].startswith("ValueError in ")
    assert warned[0].endswith("broken: of 1")
    assert spent.hook_s >= 0.02


def test_a_fork_is_not_observed() -> None:
    guarded = Guard(timeline(), pytest.fail)
    assert guarded.is_here

    def fork() -> None:
        assert not guarded.is_here

    assert in_a_fork(fork)[1] == 0
