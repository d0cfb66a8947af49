"""Does one process's file have the lines that its summary tells of, and one at least for each step that began?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.names import POINTS
from aorta_collectors.memory.verify.reading import Contents, Process, dropped


def check_contents(process: Process, contents: Contents, config: Config) -> None:
    """Raise Fault if something is lacking: incomplete, or invalid where the summary says otherwise."""
    if not process.is_behind:
        _check_counts(process, contents)
    if config.steps is None and "before_forward" in config.points and not _is_short_of_room(process.summary):
        # A step may lack any other point: a forward that an exception ends, or threads that train at once.
        began, lines = process.settled_steps, contents.points["before_forward"]
        if lines < began:
            raise Fault(
                Verdict.INCOMPLETE,
                f"rank {process.rank}: {began} step(s) began, and before_forward has {lines} line(s)",
            )


def _is_short_of_room(summary: Mapping[str, Any]) -> bool:
    """Whether points were left out for that, which what was captured says."""
    return bool(summary.get("steps_left_out") or dropped(summary))


def _check_counts(process: Process, contents: Contents) -> None:
    for kind, counts in process.summary["points"].items():
        if contents.points[kind] != counts["taken"]:
            raise Fault(
                Verdict.INVALID,
                f"memory_{process.stem}.jsonl: {contents.points[kind]} line(s) of {kind}, but the summary says "
                f"{counts['taken']}",
            )


def never_came(summary: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Points that were asked for and that the program, or this rank of it, never reached."""
    for point in POINTS:
        if point in config.points and not summary["points"].get(point, {"seen": 0})["seen"]:
            yield point


def never_taken(summary: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Points that it did reach, yet in no step that was asked for."""
    for point in POINTS:
        counts = summary["points"].get(point, {"seen": 0, "taken": 0})
        if point in config.points and counts["seen"] and not counts["taken"]:
            yield point
