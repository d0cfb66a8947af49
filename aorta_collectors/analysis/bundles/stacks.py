"""What took memory between two points, by stack, where the application had its allocations recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.bundles.course import Course

Frame = tuple[str, int, str | None]


@dataclass(frozen=True)
class GrownStack:
    """One stack in one phase, over the steps that count.

    Attributes:
        memory: host, or a device.
        begins, ends: Names of the points.
        frames: File, line and function, innermost first.
        bytes, count: What it took, less what was given back in the same phase, and in how many allocations.
        steps: In which it was among the stacks that took most.
        alive: Bytes of these that were still held at the end of their step; None where that is not recorded.
    """

    memory: str
    begins: str
    ends: str
    frames: tuple[Frame, ...]
    bytes: int
    count: int
    steps: int
    alive: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "memory": self.memory,
            "phase": f"{self.begins} -> {self.ends}",
            "bytes": self.bytes,
            "count": self.count,
            "steps": self.steps,
            "alive": self.alive,
            "frames": [{"file": file, "line": line, "function": function} for file, line, function in self.frames],
        }


def grown_stacks(course: Course) -> tuple[list[GrownStack], list[str]]:
    """By memory and phase, what took most first; and notes on what could not be read.

    Raises:
        ArtifactError: A line is none.
    """
    run = course.run
    if "growth" not in run.process.files:
        return [], []
    lines = run.growth_lines
    totals: dict[tuple[str, str, str, tuple[Frame, ...]], list[Any]] = {}
    incomplete = 0
    for line in lines:
        if line["step"] not in course.counted:
            continue
        incomplete += not line["complete"]
        for stack in line["stacks"]:
            frames = tuple((frame["file"], frame["line"], frame["function"]) for frame in stack["frames"])
            key = line["memory"], line["since"]["name"], line["until"]["name"], frames
            total = totals.setdefault(key, [0, 0, 0, None])
            total[0] += stack["bytes"]
            total[1] += stack["count"]
            total[2] += 1
            if stack["lifetimes"] is not None:
                total[3] = (total[3] or 0) + _alive(stack["lifetimes"])
    found = [GrownStack(*key, *total) for key, total in totals.items()]
    notes = list(lines.notes)
    if incomplete:
        notes.append(f"between {incomplete} pair(s) of points, entries of the record of allocations had given way")
    return sorted(found, key=lambda each: -each.bytes), notes


def _alive(lifetimes: Sequence[dict[str, Any]]) -> int:
    return sum(int(each["bytes"]) for each in lifetimes if each["freed_before"] is None)
