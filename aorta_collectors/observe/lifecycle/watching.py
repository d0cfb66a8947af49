"""What there is to tell of a process's models, whoever watches them."""

from __future__ import annotations

from typing import Any

from aorta_collectors.observe.compiling.hidden_calls import graph_breaks
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.lifecycle.models import Models


class Watching:
    """A base of what watches them."""

    _models: Models[Any]
    _failures: Failures

    @property
    def step(self) -> int:
        """Steps begun so far."""
        return self._models.clock.step

    @property
    def evaluations(self) -> int:
        """Steps so far in which no gradients were recorded."""
        return self._models.clock.evaluations

    @property
    def errors(self) -> int:
        """Errors in hooks so far."""
        return self._failures.count

    @property
    def first_error(self) -> str | None:
        return self._failures.first

    def counted(self) -> dict[str, Any]:
        """Fields of a summary that are of all models alike."""
        return {
            "steps_seen": self.step,
            "evaluation_steps": self.evaluations,
            "modules_built": self._models.roots.modules_built,
            "graph_breaks": graph_breaks(),
            "hook_errors": self.errors,
            "first_hook_error": self.first_error,
        }
