"""Calls of models that only compiled code makes: a compiled training step calls its model without any hook."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from torch import nn

from aorta_collectors.observe.compiling.inlined import Run
from aorta_collectors.observe.trace import in_backward


class CompiledCalls:
    """Makes outermost calls of runs of compiled regions, and says which modules such runs hide.

    A compiled function with graph breaks has several regions. A model is called once more when one of them comes again.

    Args:
        is_running: Whether a module's call, which hooks have seen, is going on.
        called: Called with a module before compiled code calls it, where no other call encloses that.
        hidden: Called with modules whose calls are part of a region; whether it knew them. Once it did, for each of
            them no more.
    """

    def __init__(
        self,
        is_running: Callable[[], bool],
        called: Callable[[nn.Module], None],
        hidden: Callable[[nn.Module], bool],
    ) -> None:
        self._is_running = is_running
        self._called = called
        self._hidden = hidden
        self._since_called: weakref.WeakKeyDictionary[nn.Module, set[CodeType]] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def ran(self, run: Run) -> None:
        """A region is about to run."""
        if not in_backward() and not self._is_running():
            for module in run.outermost:
                codes = self._since_called.get(module)
                if codes is None or run.code in codes:
                    self._since_called[module] = {run.code}
                    self._called(module)
                else:
                    codes.add(run.code)
        for module in run.inlined:
            if module not in self._known and self._hidden(module):
                self._known.add(module)


def graph_breaks() -> dict[str, int]:
    """Why torch.compile has ended graphs early so far: the first line of each reason, and how often."""
    counters: Mapping[str, Mapping[Any, int]] = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    found: dict[str, int] = {}
    for reason, count in dict(counters.get("graph_break") or {}).items():
        line = str(reason).strip().partition("\n")[0]
        found[line] = found.get(line, 0) + int(count)
    return found
