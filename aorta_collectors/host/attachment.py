"""What the replaced functions of one process share: which collectors are ours, and the trial that is running."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aorta_collectors.api import Collector
from aorta_collectors.registry import collector_names, load_collector

if TYPE_CHECKING:
    from aorta_collectors.host.trial import Trial


@dataclass(frozen=True)
class CellOutcome:
    """What the host made of a cell: the trials that asked for evidence, by id, and the error that ended it, if any."""

    trials: tuple[str, ...]
    error: str | None


class Attachment:
    """State of the plugin in one process. The replaced functions of the host hold it; nothing else does.

    Attributes:
        current: The trial that is running.
        trials_begun: Number of trials of ours so far, the same on all ranks.
        trials_judged: Ids of those of the running cell that have ended.
        outcomes: By name, the cells that the running sweep has finished.
    """

    def __init__(self) -> None:
        self.current: Trial | None = None
        self.outcomes: dict[str, CellOutcome] = {}
        self.trials_begun = 0
        self.trials_judged: list[str] = []
        self._load = functools.cache(load_collector)

    def ours(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` that are collectors of this plugin or of one built on it, in order, once each."""
        wanted = dict.fromkeys(names)
        known = collector_names() if wanted else frozenset()
        return tuple(name for name in wanted if name in known)

    def load(self, name: str) -> Collector:
        """Raises CollectorLoadError."""
        return self._load(name)

    @contextlib.contextmanager
    def running(self, trial: Trial) -> Iterator[None]:
        previous, self.current = self.current, trial
        try:
            yield
        finally:
            self.current = previous
