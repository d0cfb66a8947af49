"""What was read in a step while its results are on their way to the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from aorta_collectors.observe.device.rows import SealedRows
from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.reduce import Stats


class Replayed(NamedTuple):
    """The result of a tensor in a CUDA graph, as one replay of it left it."""

    rows: SealedRows
    number: int

    @property
    def stats(self) -> Stats:
        return self.rows.stats()[self.number]


class InFlight:
    """All that was read in a step, in order.

    Args:
        observations: Those of tensors on a device hold the number of their row in `rows`, or a `Replayed`.
        kept: Copies of tensors that may be bad, by index.
        rows: None where no tensor was on a device.
    """

    def __init__(self, observations: list[Observation], kept: Mapping[int, Tensor], rows: SealedRows | None) -> None:
        self._observations = observations
        self._kept = kept
        self._rows = rows
        self._replays = {seen.reduced.rows for seen in observations if isinstance(seen.reduced, Replayed)}

    def __len__(self) -> int:
        return len(self._observations)

    def is_ready(self) -> bool:
        """Whether `settle` would not wait."""
        if self._rows is not None and not self._rows.is_ready():
            return False
        return all(rows.is_ready() for rows in self._replays)

    def settle(self) -> tuple[list[Observation], dict[int, Tensor]]:
        """The observations, with readable stats, and the copies of those that are bad. Waits where it has to."""
        observations = self._observations
        if self._rows is not None or self._replays:
            stats = self._rows.stats() if self._rows is not None else []
            for index, seen in enumerate(observations):
                reduced = seen.reduced
                if type(reduced) is int:
                    observations[index] = seen._replace(reduced=stats[reduced])
                elif isinstance(reduced, Replayed):
                    observations[index] = seen._replace(reduced=reduced.stats)
        return observations, {index: tensor for index, tensor in self._kept.items() if observations[index].is_bad}
