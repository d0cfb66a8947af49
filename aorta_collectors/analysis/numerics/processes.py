"""Which processes of a trial count: those of each launcher's last attempt, as far as they ran a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.captures import Process, Trial


@dataclass(frozen=True)
class Processes:
    """Attributes:
    counted: In the order of their ranks; where no process ran a step, all of the last attempt.
    labels: Of each of them, such as "rank 3", or "rank 0, pid 71" where one rank had several processes.
    attempts_before: Processes of attempts that torchrun ended to start anew.
    idle: Processes that ran no step, beside those that did.
    """

    counted: tuple[Process, ...]
    labels: tuple[str, ...]
    attempts_before: int
    idle: int

    @property
    def summaries(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(process.summary for process in self.counted)


def processes_of(trial: Trial) -> Processes:
    """Sort out the processes of a trial."""
    last: dict[Any, int] = {}
    for process in trial.processes:
        launcher = process.summary.get("launcher")
        last[launcher] = max(last.get(launcher, 0), process.line.restart)
    kept = [process for process in trial.processes if process.line.restart == last[process.summary.get("launcher")]]
    busy = [process for process in kept if process.summary["steps_seen"]]
    counted = sorted(busy or kept, key=lambda process: (process.rank, process.stem))
    return Processes(
        tuple(counted), _labels(counted), len(trial.processes) - len(kept), len(kept) - len(busy) if busy else 0
    )


def _labels(processes: Sequence[Process]) -> tuple[str, ...]:
    of_rank = Counter(process.rank for process in processes)
    return tuple(
        f"rank {process.rank}" + (f", pid {process.summary['pid']}" if of_rank[process.rank] > 1 else "")
        for process in processes
    )


def weighted(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    """Mean of values with weights, of those that are known; None where none is, or nothing has a weight."""
    known = [(value, weight) for value, weight in pairs if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
