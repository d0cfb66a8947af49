"""What one process of a trial left of its memory: points in absolute numbers of bytes, and what grew in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from aorta_collectors.analysis.bundles.bundle import ProcessFiles
from aorta_collectors.analysis.bundles.lines import Line, LinesOf
from aorta_collectors.analysis.captures import MEMORY, Captures
from aorta_collectors.analysis.search import captures_below

HOST = "host"
_HOST = ("rss", "anonymous", "shared", "swap", "python")
_DEVICE = ("allocated", "active", "reserved", "requested", "inactive")
_OF_POOLS = ("reserved", "active")
PRIVATE = "private"
# Numbers that mostly go with another one, which says the same.
_ECHOES = MappingProxyType({"anonymous": "rss", "active": "allocated", "requested": "allocated"})


class Measure(NamedTuple):
    """One number of bytes that each point has.

    Attributes:
        memory: host, or a device such as cuda:0.
        name: Such as rss or allocated; "private reserved" and "private active" are of all private pools together.
    """

    memory: str
    name: str

    def __str__(self) -> str:
        return f"{self.memory} {self.name}"

    @property
    def echoes(self) -> Measure | None:
        """The number of the same memory that it mostly goes with; None where it says something of its own."""
        main = _ECHOES.get(self.name)
        return None if main is None else Measure(self.memory, main)

    @property
    def is_capacity(self) -> bool:
        """Whether it is memory that is kept rather than used, so that more of it is no leak by itself."""
        return self.name in ("reserved", "inactive", f"{PRIVATE} reserved")


@dataclass(frozen=True)
class MemoryRun(ProcessFiles):
    """What one process left of its memory."""

    @property
    def lines(self) -> LinesOf:
        """Points, to schemas/memory.point.json, in their order. Iterating raises ArtifactError."""
        return LinesOf(self.path, self.process, "memory", "memory.point")

    @property
    def growth_lines(self) -> LinesOf:
        """What grew between points by stack, to schemas/memory.growth.json; none where nothing was recorded."""
        return LinesOf(self.path, self.process, "growth", "memory.growth")

    @property
    def history(self) -> Mapping[str, str]:
        """By memory, whether stacks are known (recorded), or the state alone (state only)."""
        found = self.manifest.get("history")
        return found if isinstance(found, dict) else {}


def memory_runs_in(captures: Captures) -> list[MemoryRun]:
    """Of what was found for MEMORY, in its order."""
    return [MemoryRun(trial, process) for trial in captures.trials for process in trial.processes]


def memory_runs_of(path: Path) -> list[MemoryRun]:
    """What memory left below a run directory, a cell's or a trial's; in a directory; or that of one file of lines.

    Raises:
        ArtifactError: There is nothing, or it cannot be read.
    """
    return memory_runs_in(captures_below(path, MEMORY))


def measures_of(point: Line) -> Iterator[tuple[Measure, int]]:
    """All numbers of one point."""
    for name in _HOST:
        if point["host"][name] is not None:
            yield Measure(HOST, name), point["host"][name]
    for device in point["devices"]:
        for name in _DEVICE:
            yield Measure(device["device"], name), device[name]
        pools: Sequence[Mapping[str, Any]] | None = device["pools"]
        private = [pool for pool in pools or () if pool["kind"] == PRIVATE]
        if private:
            for name in _OF_POOLS:
                yield Measure(device["device"], f"{PRIVATE} {name}"), sum(pool[name] for pool in private)
