"""Noticing the steps of every optimizer of the process, whatever its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_NO_PASS = -1  # what autograd has for the number of the running backward pass where none is


class OptimizerWatch:
    """Counts optimizer steps, and tells before and after each. The callbacks must not raise.

    An optimizer that steps others inside its own step (ZeRO, torchrec's keyed and combined ones) takes one. Those that
    step inside of a backward pass, one for each parameter, take one together.

    Attributes:
        num_steps: Steps taken so far.
    """

    def __init__(
        self,
        before: Callable[[torch.optim.Optimizer], None] | None,
        after: Callable[[torch.optim.Optimizer], None] | None,
    ) -> None:
        self._before = before
        self._after = after
        self._hooks: list[Any] = []
        self._stepping: list[torch.optim.Optimizer] = []
        self._stepped: set[int] = set()
        self._backward_pass = _NO_PASS
        self.num_steps = 0

    def start(self) -> None:
        self._hooks = [
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ended),
        ]

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._stepping = []

    def take(self) -> frozenset[int]:
        """The optimizers, by id(), that have stepped since this was last asked."""
        stepped, self._stepped = frozenset(self._stepped), set()
        return stepped

    def forget(self) -> None:
        """Nothing is stepping: an exception may have ended a step without a word."""
        self._stepping.clear()

    def _begins(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if any(earlier is optimizer for earlier in self._stepping):
            self.forget()
        self._stepping.append(optimizer)
        if self._before is not None and len(self._stepping) == 1:
            self._before(optimizer)

    def _ended(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        for depth, earlier in enumerate(self._stepping):
            if earlier is optimizer:
                del self._stepping[depth:]
                break
        if self._stepping:
            return
        running = torch._C._current_graph_task_id()
        if running == _NO_PASS or running != self._backward_pass:
            self.num_steps += 1
        self._backward_pass = running
        self._stepped.add(id(optimizer))
        if self._after is not None:
            self._after(optimizer)
