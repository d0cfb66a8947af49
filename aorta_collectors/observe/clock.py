"""Which of the called modules drives the clock: its calls are the steps.

The first root that is called does: in a loop that calls a model and then a loss module, or a generator and then a
discriminator, that is one step an iteration. A choice made too early is corrected: a root takes over from a part of
itself (a backbone that was tried out before the model was built around it), and a module that is called again and
again while the driver is not takes over from it (a second training, after the first).
"""

from __future__ import annotations

import weakref

from torch import nn

from aorta_collectors.observe.root import Root

# Calls without the driver after which it is taken to be out of use. What was seen meanwhile waits in memory, and is
# reported with the step in which the driver was last called.
_OUT_OF_USE = 32


class StepClock:
    """Counts steps, from the outermost calls that it is told of."""

    def __init__(self) -> None:
        self.step = 0
        self._driver: weakref.ref[nn.Module] | None = None
        self._owner: Root | None = None
        self._calls_without_driver = 0

    def forget(self) -> None:
        """Let go of the driver; the count goes on."""
        self._driver = self._owner = None
        self._calls_without_driver = 0

    def begins_step(self, module: nn.Module, owner: Root) -> bool:
        """Whether this outermost call of `module`, which belongs to `owner`, is a new step."""
        driver = self._driver() if self._driver is not None else None
        if driver is not module:
            if not (owner.has_parameters or owner.watched_anything):
                return False  # a loss module or a metric
            self._calls_without_driver += 1
            if driver is not None and not self._takes_over(module, owner):
                return False
            self._driver, self._owner = weakref.ref(module), owner
        self._calls_without_driver = 0
        return True

    def _takes_over(self, module: nn.Module, owner: Root) -> bool:
        current = self._owner
        if current is None or self._calls_without_driver > _OUT_OF_USE:
            return True
        driver = self._driver() if self._driver is not None else None
        driver_is_root = driver is not None and current.is_root(driver)
        if owner.is_root(module) and owner is not current and current in owner.covers:
            return True
        return self._rank(owner, owner.is_root(module)) > self._rank(current, driver_is_root)

    @staticmethod
    def _rank(owner: Root, is_root: bool) -> tuple[bool, bool]:
        return owner.watched_anything, is_root
