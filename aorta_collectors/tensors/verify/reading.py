"""Reading what tensors left: summaries and lines, each whole, to its schema, and of this trial."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from aorta_collectors.api import Artifacts, Expected, Verdict
from aorta_collectors.artifacts import process, summaries
from aorta_collectors.artifacts.lines import Line, LinesFile
from aorta_collectors.artifacts.process import Fault

SCHEMA = "tensors.observation"
#: A file that a process makes before its summary.
BESIDE = re.compile(r"tensors_(rank\d+(?:_p\d+)?)\.jsonl$")
_VALUES = re.compile(r"values_(rank\d+(?:_p\d+)?)_step\d+(?:_part\d+)?\.safetensors$")


@dataclass(frozen=True)
class Process(process.Process):
    """One process that tensors was armed in."""

    shown: ClassVar[tuple[str, ...]] = (
        *("watched_count", "tensors_observed", "points", "opaque_names", "hook_errors", "lines_dropped"),
        *("tensors_left_out", "tensors_passed_over", "first_nonfinite", "values"),
    )

    @property
    def attached(self) -> bool:
        """A program may observe tensors without a model that is found."""
        return int(self.summary["watched_count"]) > 0 or self.observed > 0

    @property
    def bad_at(self) -> int | None:
        """At the latest: how many of all evaluations came before is not known."""
        found = self.summary["first_nonfinite"]
        return None if found is None else int(found["step"]) - int(self.summary.get("evaluation_steps", 0))

    @property
    def observed(self) -> int:
        return int(self.summary["tensors_observed"])

    def at(self, point: str) -> int:
        """Tensors that came by at a point, in steps that are observed."""
        return int(self.summary["points"].get(point, 0))


@dataclass
class Contents:
    """What the lines of one process say of values.

    Attributes:
        values: Lines by file, then by key.
        unread: How many tensors had no digest, by reason.
        left_out: How many had no values kept that were asked for, by reason.
    """

    values: dict[str, dict[str, Line]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


def read_processes(artifacts: Artifacts, expected: Expected) -> list[Process]:
    """The processes that left a summary for this trial. Raises Fault (missing, invalid, stale)."""
    return summaries.read_processes(artifacts, expected, "tensors.summary", Process, module="aorta_collectors.tensors")


def read_lines(artifacts: Artifacts, process: Process) -> Contents:
    """Read a process's lines to their end.

    Raises:
        Fault: invalid, stale; incomplete where the process died in the middle of a line.
    """
    name = f"tensors_{process.stem}.jsonl"
    look = _Look(name, process.stem)
    file = LinesFile(name, SCHEMA, int(process.summary["lines_written"]), ("rank", "pid"))
    file.check(artifacts, process, look.at)
    return look.contents


class _Look:
    """What is to hold of lines beyond their schema: each tensor is told once, in the order of observation."""

    def __init__(self, name: str, stem: str) -> None:
        self.contents = Contents()
        self._name = name
        self._stem = stem
        self._order = -1
        self._last: dict[str, int] = {}

    def at(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line["order"] <= self._order or line["invocation"] <= self._last.get(line["name"], -1):
                raise Fault(
                    Verdict.INVALID,
                    f"{self._name}: {line['name']} of invocation {line['invocation']} (order {line['order']}) is told "
                    "twice, or out of order",
                )
            self._order = line["order"]
            self._last[line["name"]] = line["invocation"]
            self._sort(line)

    def _sort(self, line: Line) -> None:
        contents = self.contents
        if line.get("unread"):
            contents.unread[line["unread"]] = contents.unread.get(line["unread"], 0) + 1
        if line["left_out"]:
            contents.left_out[line["left_out"]] = contents.left_out.get(line["left_out"], 0) + 1
        if line["file"] is None:
            return
        match = _VALUES.match(line["file"])
        if match is None or match.group(1) != self._stem or line["key"] is None:
            raise Fault(
                Verdict.INVALID, f"{self._name}: {line['name']}: {line['file']} is no file of this process's values"
            )
        kept = {key: line[key] for key in ("name", "dtype", "shape", "digest")}
        if contents.values.setdefault(line["file"], {}).setdefault(line["key"], kept) is not kept:
            raise Fault(Verdict.INVALID, f"{self._name}: {line['file']}: {line['key']} is named twice")
