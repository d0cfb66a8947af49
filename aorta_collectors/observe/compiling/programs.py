"""What torch.compile runs of a program: regions of captured code, and models whose calls it takes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from aorta_collectors.observe.compiling.hidden_calls import CompiledCalls
from aorta_collectors.observe.compiling.inlined import Run
from aorta_collectors.observe.compiling.inside import InsideWatch
from aorta_collectors.observe.compiling.own_code import leave_own_code_alone
from aorta_collectors.observe.compiling.own_hooks import OwnHooksHidden
from aorta_collectors.observe.compiling.regions import CompiledRegions


class CompiledPrograms:
    """Watches compiled code.

    Args:
        inside: Looks for the origin of bad values in there, or None.
        is_running: Whether an outermost call that is seen is going on.
        called: Called with a model that compiled code is about to call.
        hidden: Called with modules whose calls lie inside compiled code; returns whether they belong to a model.
        is_elsewhere: Whether this is a fork of the observed process.
        guarded: Calls a function, and keeps what it raises.
    """

    def __init__(
        self,
        inside: InsideWatch | None,
        is_running: Callable[[], bool],
        called: Callable[[nn.Module], None],
        hidden: Callable[[nn.Module], bool],
        is_elsewhere: Callable[[], bool],
        guarded: Callable[..., None],
    ) -> None:
        self._inside = inside
        self._is_elsewhere = is_elsewhere
        self._guarded = guarded
        self._calls = CompiledCalls(is_running, called, hidden)
        self._regions = CompiledRegions(inside.ran if inside is not None else None, begins=self._begins)
        self._own_hooks = OwnHooksHidden()

    def start(self) -> None:
        leave_own_code_alone()
        self._regions.start()
        self._own_hooks.start()

    def stop(self) -> None:
        self._regions.stop()
        self._own_hooks.stop()
        if self._inside is not None:
            self._inside.begin_step()

    def unseen(self) -> list[str]:
        """What could not be looked at for the origin of bad values, in words."""
        found: Any = self._regions.unseen() if self._inside is not None else []
        return list(found)

    def _begins(self, run: Run) -> None:
        if not self._is_elsewhere():
            self._guarded(self._calls.ran, run)
