"""What sees the calls of one module: how `calls` tells it of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

from torch import nn

from aorta_collectors.observe.modes import out_of_modes

Kwargs = Callable[[], "Mapping[str, Any] | None"]


class Spent(Protocol):
    """Where the time that hooks take is added up."""

    #: Seconds.
    hook_s: float


class Called(Protocol):
    """A module whose calls are seen. Nothing of it is attached to the module, and no method raises an Exception.

    Attributes:
        module: A weak reference.
        path: Layer name.
        module_path: The same without what wrappers add.
        is_part: Whether it is part of a larger one, not a root.
        asked: Whether anybody asked for it by what it is; else it is looked at for another's sake.
        is_plain_part: Whether it is, and all there is to do before a call with one argument can wait until that ended.
        deferred: Handles of hooks for calls that are looked at after the module's own hooks.
        unseen: Whether its calls are to be looked at, and none has been so far.
    """

    module: weakref.ref[nn.Module]
    path: str
    module_path: str
    is_part: bool
    asked: bool
    is_plain_part: bool
    deferred: list[Any]
    unseen: bool

    def before(self, args: tuple[Any, ...], kwargs: Kwargs, began: float) -> None:
        """A call begins; of one that `is_plain_part` with no hooks of its own, this need not be told.

        Args:
            began: time.perf_counter() when the hook began, whose whole time is told to the cost when it has ended.
        """

    def after(self, args: tuple[Any, ...], output: Any, began: float) -> None:
        """The call has ended; with None after an exception."""

    def defer(self, module: nn.Module) -> None:
        """Tell `after` of the call that begins when the module's own hooks have run."""

    def release(self) -> None:
        """Take off what hangs on tensors that live on."""


class Deferring:
    """Hooks that look at the outputs of a call after the module's own hooks, which may replace them.

    torch runs those after its global ones. The hook for it is gone before the call has ended.

    Args:
        cost: Gets the time that these hooks take.
    """

    def __init__(self, cost: Spent) -> None:
        self.deferred: list[Any] = []
        self._deferred_in = 0
        self._cost = cost

    def after(self, args: tuple[Any, ...], output: Any, began: float) -> None:
        raise NotImplementedError

    def current_step(self) -> int:
        """The step at hand."""
        raise NotImplementedError

    def defer(self, module: nn.Module) -> None:
        step = self.current_step()
        if self._deferred_in != step:
            self._deferred_in = step
            while self.deferred:  # what an exception that is no Exception left behind
                self.deferred.pop().remove()

        def late(_module: nn.Module, args: Any, output: Any) -> None:
            began = perf_counter()
            handle.remove()
            self.deferred.remove(handle)
            out_of_modes(self.after, args, output, began)
            self._cost.hook_s += perf_counter() - began

        handle = module.register_forward_hook(late, always_call=True)
        self.deferred.append(handle)
