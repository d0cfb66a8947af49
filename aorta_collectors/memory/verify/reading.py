"""Reading what memory left: summaries and files of lines, each whole, to its schema, and of this trial."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aorta_collectors.api import Artifacts, Expected
from aorta_collectors.artifacts import process, summaries
from aorta_collectors.artifacts.lines import Line, LinesFile
from aorta_collectors.memory.verify.numbers import check_numbers

#: Kinds of files of lines, <kind>_<stem>.jsonl, and the schema of a line.
KINDS = {"memory": "memory.point", "growth": "memory.growth"}
#: Files that a process makes before its summary.
BESIDE = re.compile(rf"(?:{'|'.join(KINDS)})_(rank\d+(?:_p\d+)?)\.jsonl$")


@dataclass(frozen=True)
class Process(process.Process):
    """One process that memory was armed in."""

    shown: ClassVar[tuple[str, ...]] = ("watched_count", "hook_errors", "history", "peak_rss", "devices")

    @property
    def attached(self) -> bool:
        return bool(self.summary["roots"])

    @property
    def bad_at(self) -> int | None:
        return None  # memory is nothing that a program stops over by design

    @property
    def settled_steps(self) -> int:
        """Steps whose lines are sure to have been written: a sudden end takes those of the last one with it."""
        return self.steps if self.summary["status"] == "complete" else max(self.steps - 1, 0)

    def state(self) -> dict[str, Any]:
        lines = {kind: written(self.summary, kind) for kind in KINDS if kind in self.summary["files"]}
        points = {kind: counts["taken"] for kind, counts in self.summary["points"].items()}
        return {**super().state(), "lines_written": lines, "points": points}


@dataclass
class Contents:
    """What the lines of one process come to.

    Attributes:
        points: Lines by kind of point, as the summary counts them: those around modules are one kind.
        next_order: That the next point would have.
    """

    points: Counter[str] = field(default_factory=Counter)
    next_order: int = 0


def read_processes(artifacts: Artifacts, expected: Expected) -> list[Process]:
    """The processes that left a summary for this trial. Raises Fault (missing, invalid, stale)."""
    return summaries.read_processes(artifacts, expected, "memory.summary", Process, module="aorta_collectors.memory")


def read_lines(artifacts: Artifacts, process: Process) -> Contents:
    """Read a process's files of lines to their ends.

    Raises:
        Fault: invalid, also where numbers contradict each other; stale; incomplete where the process died in the
            middle of a line.
    """
    contents = Contents()
    name = f"memory_{process.stem}.jsonl"

    def look(lines: Sequence[Line]) -> None:
        for line in lines:
            check_numbers(name, line, contents.next_order)
            contents.next_order = line["order"] + 1
            contents.points["layers" if line["layer"] else line["point"]] += 1

    looks = {"memory": look, "growth": _pass_by}
    for kind in (kind for kind in KINDS if kind in process.summary["files"]):
        file = LinesFile(f"{kind}_{process.stem}.jsonl", KINDS[kind], written(process.summary, kind), ("rank", "pid"))
        file.check(artifacts, process, looks[kind])
    return contents


def written(summary: Mapping[str, Any], kind: str) -> int:
    """Lines of one kind, as the summary counts them."""
    return int(summary["files"].get(kind, {"written": 0})["written"])


def dropped(summary: Mapping[str, Any]) -> int:
    """Points that there was no room for."""
    return int(summary["files"].get("memory", {"dropped": 0})["dropped"])


def _pass_by(lines: Sequence[Line]) -> None:
    pass
