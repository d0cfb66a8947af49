"""Telling the listener: what all hooks of a lifecycle share, and the state of the call that runs on each thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.lifecycle.listener import Listener

if TYPE_CHECKING:
    from aorta_collectors.observe.lifecycle.layer_call import LayerCalls


class Running(threading.local):
    """What runs on a thread.

    Attributes:
        layers: Those whose calls have begun, the innermost last.
        is_forward: Whether a model's call runs whose end is to be told.
        is_compiled: Whether only compiled code makes it, so that nothing shows its end.
        has_left: Whether it has ended but for hooks of the module's own.
    """

    def __init__(self) -> None:
        self.layers: list[LayerCalls] = []
        self.is_forward = self.is_compiled = self.has_left = False


class Telling:
    """
    Attributes:
        step: At hand; 0 before the first one.
        is_closed: Whether nothing is told any more: after the end, or in a fork.
        is_capturing: Whether a CUDA graph is captured.
        tells_captures: Whether the listener is told of what is captured.
        called_count: Layers of which a call was seen.
    """

    def __init__(self, listener: Listener, failures: Failures, cost: Cost, *, gradients: bool) -> None:
        self.listener = listener
        self.failures = failures
        self.cost = cost
        self.gradients = gradients
        self.running = Running()
        self.step = 0
        self.is_closed = True
        self.is_capturing = self.tells_captures = False
        self.called_count = 0

    @property
    def is_silent(self) -> bool:
        """Whether a point that comes now is told to nobody."""
        return self.is_closed or (not self.tells_captures if self.is_capturing else self.step == 0)

    def tell(self, method: Any, *args: Any) -> None:
        """Call a method of the listener's, whose errors are counted."""
        self.failures.guarded(method, *args)

    def before_forward(self, *, is_compiled: bool) -> None:
        running = self.running
        running.is_forward, running.is_compiled, running.has_left = True, is_compiled, False
        self.tell(self.listener.before_forward, self.step)

    def forward_left(self) -> None:
        """The outermost call has ended; hooks of the module's own may come yet, and what they return counts."""
        running = self.running
        if running.is_forward:
            if running.layers:
                running.has_left = True
            else:
                self.after_forward()

    def after_forward(self) -> None:
        running = self.running
        running.is_forward = running.is_compiled = running.has_left = False
        if not self.is_silent:
            self.tell(self.listener.after_forward, self.step)

    def after_compiled_forward(self) -> None:
        """Something comes that ends a call that only compiled code has made."""
        if self.running.is_forward and self.running.is_compiled:
            self.after_forward()
