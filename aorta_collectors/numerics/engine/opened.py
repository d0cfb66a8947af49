"""What has begun and not ended yet, on which thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from aorta_collectors.numerics.spans.span import Span


class Opened:
    """Something that has begun and not ended. The timeline sets what the constructor does not.

    Attributes:
        keep: Whether a span is to be made of it.
        stack: What is open on the thread where it began; None for a step, which threads share, and when it has ended.
        spent_s: What observing had taken so far when it began, in seconds.
    """

    __slots__ = (
        "direction",
        "keep",
        "kind",
        "lamport",
        "layer",
        "name",
        "parent_id",
        "span_id",
        "spent_s",
        "stack",
        "start_ns",
        "step",
        "thread",
    )

    span_id: int
    parent_id: int
    step: int
    thread: int
    lamport: int
    spent_s: float
    start_ns: int

    def __init__(self, name: str, kind: str, layer: str, direction: str, keep: bool) -> None:
        self.name = name
        self.kind = kind
        self.layer = layer
        self.direction = direction
        self.keep = keep
        self.stack: Stack | None = None

    @property
    def shown_id(self) -> int:
        """The parent of what begins inside: itself, or what encloses it where it is not written."""
        return self.span_id if self.keep else self.parent_id

    def overhead_ns(self, end_ns: int, spent_s: float) -> int:
        """What observing took in it if by its end that is `spent_s`; of other threads, no more than it lasted."""
        return min(round((spent_s - self.spent_s) * 1e9), end_ns - self.start_ns)

    def own_ns(self, end_ns: int, spent_s: float) -> int:
        """Its duration without that."""
        return end_ns - self.start_ns - self.overhead_ns(end_ns, spent_s)

    def span(self, end_ns: int, spent_s: float, attributes: Mapping[str, Any] | None) -> Span:
        return Span(
            self.name,
            self.kind,
            self.layer,
            self.direction,
            self.step,
            self.start_ns,
            end_ns,
            self.overhead_ns(end_ns, spent_s),
            self.span_id,
            self.parent_id,
            self.thread,
            self.lamport,
            attributes,
        )


class Held(Opened):
    """Something that will be ended for certain, if not in the order of a stack: coroutines take turns."""

    __slots__ = ()


class Stack(list[Opened]):
    """What is open on one thread, the innermost last.

    Attributes:
        thread: threading.get_native_id() of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_native_id()
