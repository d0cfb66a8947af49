"""Forks of the observed process: a data loader's worker writes no evidence, and one that trains is a hole in it."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn


class Forks:
    """Tells the process that was armed from those that were forked off it.

    Args:
        trains: Called once in a fork that trains a model.
    """

    def __init__(self, trains: Callable[[], None]) -> None:
        self._trains = trains
        self._pid = 0
        self._reported = False

    def start(self) -> None:
        """This is the process that is observed."""
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether this is a fork."""
        return os.getpid() != self._pid

    def called(self, module: nn.Module) -> None:
        """A model is called in a fork."""
        if not self._reported and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
            self._reported = True
            self._trains()
