"""A program's own steps: `with step("SAMPLE"): ...` is a span wherever a session is armed, and nothing elsewhere.

How it finds the session: see observe.beacon. A process that is not observed pays for one look into a dictionary.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.spans.span import INFERENCE_STEPS, TRAINING_STEPS
from aorta_collectors.observe.beacon import Beacon

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.timeline import Opened, Timeline

_MOST_CHARACTERS = 200
_NAMED = frozenset((*INFERENCE_STEPS, *TRAINING_STEPS))


class Step(ContextDecorator):
    """A step of the program's own, as a context or around a function. What `step` returns."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self._name = name
        self._attributes = attributes
        self._opened: list[tuple[Marks, Opened]] = []

    def __enter__(self) -> Step:
        marks = Marks.find()
        if marks is not None:
            marks.begin(self._name, self._opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened:
            marks, opened = self._opened.pop()
            marks.end(opened, self._attributes)

    def _recreate_cm(self) -> Step:
        # Each call of a decorated function is a span of its own, also where it calls itself or runs in two threads.
        return Step(self._name, self._attributes)


def step(name: str, /, **attributes: Any) -> Step:
    """A span around what the program does, where one of its sessions is observed; otherwise nothing at all.

    `with step("SAMPLE"): ...`, or `@step("RERANK", beam=4)` above a function. A name of one of the named steps
    (TOKENIZE, SAMPLE, DATA, ...), in any case, counts as that; any other is the program's own. Of a coroutine or
    generator function only the making would be timed: put it inside.

    Args:
        name: Printable, 1 to 200 characters.
        attributes: Told with the span: text, numbers, or None.

    Raises:
        ValueError: The name is not like that.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > _MOST_CHARACTERS:
        shown = repr(name)[:_MOST_CHARACTERS]
        raise ValueError(f"a step's name has 1 to {_MOST_CHARACTERS} printable characters, not {shown}")
    return Step(name, attributes)


class Marks(Part, Beacon):
    """Where `step` finds the timeline of the session that is armed."""

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        super().__init__()
        self._timeline = timeline
        self._warn = warn

    def start(self) -> None:
        self.light()

    def stop(self) -> None:
        self.put_out()

    def begin(self, name: str, opened: list[tuple[Marks, Opened]]) -> None:
        named = name.upper() if name.upper() in _NAMED else ""
        try:
            opened.append((self, self._timeline.hold(named or name, "phase" if named else "user")))
        except Exception as error:
            self._warn(f"step({name!r}): {error}")

    def end(self, opened: Opened, attributes: dict[str, Any]) -> None:
        try:
            self._timeline.end(opened, attributes={key: _plain(value) for key, value in attributes.items()})
        except Exception as error:
            self._warn(f"the end of a step: {error}")


def _plain(value: Any) -> Any:
    """As JSON can have it."""
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    with contextlib.suppress(Exception):
        return str(value)
    return type(value).__name__
