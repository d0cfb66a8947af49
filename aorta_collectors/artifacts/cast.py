"""What each process of a trial was in it: an observer of a model, an idle rank, a helper, or one of an earlier attempt.

torchrun starts all of its workers anew when one of them fails, once all have ended. What became of those of an earlier
attempt is then no word on the whole; the last attempt has to be complete by itself. A rank that calls no model, such as
a data or a parameter server, is not expected to have observed one, but to have said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from aorta_collectors.artifacts.process import Process

P = TypeVar("P", bound=Process)


class Cast(Generic[P]):
    """The processes of one trial, by what they were.

    Attributes:
        current: All but those of earlier attempts.
        attached: Those of them that observed a model.
        idle: Those of ranks without such a process.
        helpers: The others, which observed nothing beside one that did.
        earlier: Processes of earlier attempts that observed a model.
    """

    def __init__(self, processes: Sequence[P]) -> None:
        last: dict[str | None, int] = {}
        for process in processes:
            launcher = process.summary.get("launcher")
            if launcher is not None:
                last[launcher] = max(last.get(launcher, 0), process.restart)
        self._all = [(process, process.restart < last.get(process.summary.get("launcher"), 0)) for process in processes]
        self.current = [process for process, is_replaced in self._all if not is_replaced]
        self.attached = [process for process in self.current if process.attached]
        self.earlier = [process for process, is_replaced in self._all if is_replaced and process.attached]
        working = {process.rank for process in self.attached}
        self.idle = [process for process in self.current if process.rank not in working]
        self.helpers = [process for process in self.current if process.rank in working and not process.attached]

    @property
    def superseded(self) -> int:
        """How many processes belong to earlier attempts."""
        return len(self._all) - len(self.current)

    @property
    def last_attempt(self) -> int:
        """How often workers had been started anew when the last of them were."""
        return max((process.restart for process in self.current), default=0)

    @property
    def world_size(self) -> int:
        """Of the largest job among them; 0 where no process has been told of its own."""
        sizes = ((process.rank, int(process.summary.get("world_size", 1))) for process in self.current)
        # A launcher that tells a process of its rank alone leaves the size at one.
        return max((size for rank, size in sizes if rank < size), default=0)

    def by_fault(self) -> list[P]:
        """Observers and idle ranks. A launcher stops all ranks when one has failed: those that it stopped come last."""
        return sorted(self.attached + self.idle, key=lambda process: (bool(process.killed_by), not process.running))

    def missing(self, world_size: int) -> list[int]:
        """Ranks that left nothing."""
        return sorted(set(range(world_size)) - {process.rank for process in (*self.attached, *self.idle)})

    def saw_bad_beside(self, process: P) -> bool:
        """Whether another rank had seen something bad by the step in which this process ended: it may be the reason.

        Steps are training steps, since the other rank may have evaluated more often.
        """
        last = process.steps - int(process.summary.get("evaluation_steps", 0))
        for other in self.attached:
            bad_at = other.bad_at
            if bad_at is not None and _may_be_of_one_job(process, other) and bad_at <= last + 1:
                return True
        return False

    def states(self) -> list[dict[str, Any]]:
        """For the receipt: each process in a few fields."""
        return [
            {
                **process.state(),
                "restart": process.restart,
                "state": "superseded" if is_replaced else _state(process),
            }
            for process, is_replaced in self._all
        ]


def _may_be_of_one_job(process: Process, other: Process) -> bool:
    """Whether they can be two ranks of one job. Each machine of a job has a torchrun of its own."""
    mine, its = process.summary, other.summary
    return mine["rank"] != its["rank"] and (mine["host"] != its["host"] or mine.get("launcher") == its.get("launcher"))


def _state(process: Process) -> str:
    if process.running:
        return "died"
    if not process.attached:
        return "nothing watched" if process.summary.get("roots") else "no model"
    return str(process.summary.get("status", "complete"))
