"""The observer effect as a part of a report: the runs with the tool and without it, beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from aorta_collectors.investigate.files import Run
from aorta_collectors.investigate.report.document import Block, Line, Strong, Table, items, paragraph
from aorta_collectors.investigate.report.observer import (
    Beside,
    ObserverEffect,
    OfVariant,
    describe_added,
    describe_outputs,
    seconds,
)


def observer_blocks(effect: ObserverEffect) -> Iterator[Block]:
    """A table of the runs beside each other, and what they come to."""
    if not effect.is_measured:
        yield paragraph("Not measured. That the tool changes nothing is not shown.")
        return
    rows = [
        ((each.variant,), (str(beside.repetition),), *_beside(beside.without, beside.with_tool), (_same(beside),))
        for each in effect.variants
        for beside in each.beside
    ]
    headings = ("variant", "repetition", "without the tool", "with it", "exit codes", "stdout")
    yield paragraph("Measured: runs with the tool and without it, beside each other.")
    yield Table(headings, tuple(rows), frozenset({1, 2, 3}))
    yield items(*((_summed_up(each),) for each in effect.variants if each.beside))
    if effect.differs:
        doubt = "" if effect.is_certain else " Chance is not ruled out."
        yield paragraph(
            Strong(f"The tool slows the {effect.slowed} more. "),
            f"Timings of runs with the tool cannot be held against each other.{doubt}",
        )
    elif effect.differs is None:
        yield paragraph("Whether the tool treats the variants alike cannot be told.")
    else:
        yield paragraph("That the tool treats the variants differently is not shown by these runs.")


def _summed_up(of: OfVariant) -> str:
    durations = of.durations
    if not durations.repetitions:
        return (
            f"{of.variant}: no repetition completed both with the tool and without it, one after the other; "
            f"{describe_outputs(of)}."
        )
    return (
        f"{of.variant}: without the tool {durations.first.describe(seconds)}, with it "
        f"{durations.second.describe(seconds)}; {describe_added(of)}. It has {describe_outputs(of)}."
    )


def _beside(without: Run, with_tool: Run) -> tuple[Line, Line, Line]:
    durations = [run.record["duration_s"] for run in (without, with_tool)]
    codes = [run.record["exit_code"] for run in (without, with_tool)]
    shown = [("-",) if value is None else (seconds(value),) for value in durations]
    return shown[0], shown[1], (" / ".join("-" if code is None else str(code) for code in codes),)


def _same(beside: Beside) -> str:
    return {True: "the same", False: "not the same", None: "not kept"}[beside.same_output]
