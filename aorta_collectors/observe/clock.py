"""Which of the called modules drives the clock: its calls are the steps.

The first root that is called does: in a loop that calls a model and then a loss module, or a generator and then a
discriminator, that is one step an iteration. A choice made too early is corrected. A root takes over from a part of
itself (a backbone that was tried out before the model was built around it). A module that is called again and again
while the driver is not takes over from it (a second training, after the first). And one that is trained beside the
driver, but called less often, takes over from it: a discriminator may be called first, and three times an iteration.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

from aorta_collectors.observe.root import Root

# Calls without the driver after which it is taken to be out of use. What was seen meanwhile waits in memory, and is
# reported with the step in which the driver was last called.
_OUT_OF_USE = 32
# Calls of the driver between two of a module that is trained with it. More are no loop around both.
_MOST_AN_ITERATION = 8


class StepClock:
    """Counts steps, from the outermost calls that it is told of.

    Attributes:
        step: Steps begun so far.
        evaluates: Whether the one that runs has called models only where no gradients are recorded, as an evaluation
            between training steps does.
    """

    def __init__(self) -> None:
        self.step = 0
        self.evaluates = False
        self._evaluations = 0
        self._driver: weakref.ref[nn.Module] | None = None
        self._owner: Root[Any] | None = None
        self._calls_without_driver = 0
        self._driver_calls = 0
        # Of modules that are trained beside the driver: its calls up to their last one.
        self._beside: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()

    def forget(self) -> None:
        """Let go of the driver; the count goes on."""
        self._driver = self._owner = None
        self._calls_without_driver = 0
        self._beside.clear()

    def begin(self) -> None:
        """A step begins."""
        self._evaluations += self.evaluates
        self.step += 1
        self.evaluates = not torch.is_grad_enabled()

    @property
    def evaluations(self) -> int:
        """Steps so far that evaluated."""
        return self._evaluations + self.evaluates

    def begins_step(self, module: nn.Module, owner: Root[Any]) -> bool:
        """Whether this outermost call of `module`, which belongs to `owner`, is a new step."""
        driver = self._driver() if self._driver is not None else None
        if driver is not module:
            if not (owner.has_parameters or owner.watched_anything):
                return False  # a loss module or a metric
            self._calls_without_driver += 1
            if driver is not None and not self._takes_over(module, owner):
                self.evaluates = self.evaluates and not (owner.has_parameters and torch.is_grad_enabled())
                return False
            self._driver, self._owner = weakref.ref(module), owner
            self._beside.clear()
        self._calls_without_driver = 0
        self._driver_calls += 1
        return True

    def _takes_over(self, module: nn.Module, owner: Root[Any]) -> bool:
        current = self._owner
        if current is None or self._calls_without_driver > _OUT_OF_USE:
            return True
        driver = self._driver() if self._driver is not None else None
        driver_is_root = driver is not None and current.is_root(driver)
        if owner.is_root(module) and owner is not current and current in owner.covers:
            return True
        if self._is_slower(module, owner, current):
            return True
        return self._rank(owner, owner.is_root(module)) > self._rank(current, driver_is_root)

    def _is_slower(self, module: nn.Module, owner: Root[Any], current: Root[Any]) -> bool:
        """Whether `module` is trained beside the driver, which is called several times for each of its calls."""
        if not (owner.is_root(module) and owner.watched_anything and owner is not current):
            return False
        if not (module.training and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())):
            return False
        earlier = self._beside.get(module)
        self._beside[module] = self._driver_calls
        return earlier is not None and 1 < self._driver_calls - earlier <= _MOST_AN_ITERATION

    @staticmethod
    def _rank(owner: Root[Any], is_root: bool) -> tuple[bool, bool]:
        return owner.watched_anything, is_root
