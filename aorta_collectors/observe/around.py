"""Taking the place of a function, so that what it warns of still names the line of the program that calls it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from aorta_collectors.observe.compiling.own_code import leave_alone

F = TypeVar("F", bound=Callable[..., Any])

# Where a warning counts callers to find the line that it is about, Python passes over frames whose file is named like
# this. Which warnings are shown, how often, and which end a program depends on that line.
_PASSED_OVER = "<importlib._bootstrap: aorta_collectors>"


def in_place_of(original: Any, ours: F) -> F:
    """`ours`, with the name and documentation of `original`, which it calls as its free variable `original`."""
    function: Any = functools.wraps(original)(ours)
    function.__code__ = function.__code__.replace(co_filename=_PASSED_OVER)
    leave_alone(function.__code__)
    return ours
