"""Calls of a library's functions as spans of a named step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.observe.patches import Patches

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.timeline import Opened, Timeline

#: What is told of a call: from its positional arguments and its result, which is None where it raised.
Attributes = Callable[[Sequence[Any], Any], Mapping[str, Any] | None]


class NamedCalls:
    """Stands around functions. A call within another one, on the same thread, counts with the outer one.

    Attributes:
        patches: Where its functions stand.
        guarded: Runs what is ours inside of calls of the program.
    """

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        self.patches = Patches()
        self._timeline = timeline
        self.guarded = Guard(timeline, warn)
        self._thread = threading.local()

    def put(self, owner: Any, name: str, step_name: str, attributes: Attributes | None = None) -> None:
        """Have calls of `owner.name` be spans of `step_name`."""

        def around(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if not self.patches.stand or self._is_inside or not self.guarded.is_here:
                    return original(*args, **kwargs)
                opened = self._begin(step_name)
                result = None
                try:
                    result = original(*args, **kwargs)
                    return result
                finally:
                    self._end(opened, attributes, args, result)

            return call

        self.patches.put(owner, name, around)

    def stop(self) -> None:
        self.patches.undo()

    @property
    def _is_inside(self) -> bool:
        return getattr(self._thread, "is_inside", False)

    def _begin(self, step_name: str) -> list[Opened]:
        """The opened span, or nothing where it could not be."""
        opened: list[Opened] = []
        self._thread.is_inside = True
        self.guarded(lambda: opened.append(self._timeline.begin(step_name, "phase")))
        return opened

    def _end(self, opened: list[Opened], attributes: Attributes | None, args: Sequence[Any], result: Any) -> None:
        self._thread.is_inside = False

        def end() -> None:
            told = attributes(args, result) if attributes is not None and result is not None else None
            self._timeline.end(opened[0], attributes=told)

        if opened:
            self.guarded(end)
