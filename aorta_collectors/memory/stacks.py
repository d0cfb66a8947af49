"""Stack traces of allocations, as lines of growth_<stem>.jsonl tell them: innermost frame first, without our own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Of a stack. Deeper ones differ in how a program was started, and not in what took memory.
_MOST_FRAMES = 30
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Frame(NamedTuple):
    """One call; function is None where only the line is known."""

    file: str
    line: int
    function: str | None


Stack = tuple[Frame, ...]


def is_ours(file: str) -> bool:
    """Whether a file belongs to this package, whose hooks stand in every stack below a model's call."""
    return file.startswith(_OURS)


def stack_of(frames: Iterable[Mapping[str, Any]]) -> Stack:
    """Of the frames that torch's allocator has recorded; those of Python alone, where C++ ones are recorded as well."""
    known = [Frame(str(frame["filename"]), int(frame["line"]), str(frame["name"])) for frame in frames]
    python = [frame for frame in known if frame.file.endswith(".py") or frame.file.startswith("<")]
    return shortened(python or known)


def shortened(frames: Sequence[Frame]) -> Stack:
    return tuple([frame for frame in frames if not is_ours(frame.file)][:_MOST_FRAMES])


def told(stack: Stack) -> list[dict[str, Any]]:
    """As JSON."""
    return [frame._asdict() for frame in stack]
