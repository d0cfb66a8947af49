"""Memory over the steps of a run in a terminal: what grows and where, absolute numbers by point, phases, stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.bundles.growth import Growth, OfMeasure, device_at_the_end
from aorta_collectors.analysis.bundles.stacks import GrownStack
from aorta_collectors.report import columns
from aorta_collectors.report.memory_words import change, size, slope, unjudged, verdict, where
from aorta_collectors.report.tensors_words import Say, say_to
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SHOWN = ("rss", "allocated", "reserved")
_MOST_FRAMES = 3
_STATE_ONLY = "state only"
# Of a table of steps: what a column takes, and the names of points.
_COLUMN, _NAMES = 11, 22
# Fewer columns than these leave no room for an interval.
_WIDE = 100


def render(runs: Sequence[Growth], console: Console, most: int = 20, every: bool = False) -> None:
    """Write what a person wants to know first, first.

    Args:
        most: Rows of each table.
        every: Whether points and phases are shown of all numbers; else of those that grow, or of the main ones.
    """
    say = say_to(console)
    for index, each in enumerate(runs):
        if index:
            say()
        _run(each, console, say, most, every)


def _run(found: Growth, console: Console, say: Say, most: int, every: bool) -> None:
    steps = found.course.steps
    counted = f"{len(found.course.counted)} of them count: what the first one takes, it mostly keeps"
    say(f"{text(found.run.label)}: {len(steps)} step(s); {counted}", "bold")
    for note in found.notes:
        say(f"note: {text(note)}", "yellow")
    known = ", ".join(f"{memory}: {state}" for memory, state in found.run.history.items())
    if known:
        unknown = _STATE_ONLY in found.run.history.values()
        say(f"allocations: {text(known)}{' (how much there is, and not who took it)' * unknown}", "dim")
    say()
    for measure in found.growing:
        lowest = measure.lowest
        ends = f"{size(lowest.first)} in step {lowest.first_step} to {size(lowest.last)} in step {lowest.last_step}"
        by = change(lowest.change)
        say(f"{text(measure.measure)} grows: at {text(lowest.place)} from {ends}, {by}", "bold red")
        say(f"  {slope(lowest.trend)} a step; {text(where(measure))}.")
    for measure in found.stopped:
        lowest = measure.lowest
        say(
            f"{text(measure.measure)} has grown from {size(lowest.first)} in step {lowest.first_step} to "
            f"{size(lowest.last)} in step {lowest.last_step}, by {change(measure.later_change)} in the later half of "
            "these: mostly filled once, as a cache is",
            "yellow",
        )
    if not found.is_judged:
        say(f"Whether anything grows cannot be told: {unjudged(found)}.", "bold yellow")
    elif not found.growing:
        still = " any more" if found.stopped else ""
        say(f"Nothing in use grows{still} by {size(found.least_bytes)} or more.", "bold green")
    shown = [each for each in found.measures if not each.is_nothing]
    if shown:
        say()
        say("Where a step holds least", "bold")
        console.print(_measures(shown, console.width))
    devices(found, say)
    told = found.growing + [each for each in shown if each.grows and each.measure.is_capacity]
    for measure in shown:
        if every or measure in told or (not told and measure.measure.name in _SHOWN):
            say()
            shown_steps = len(_some(steps, console.width))
            more = "" if shown_steps == len(steps) else f" ({shown_steps} of {len(steps)} steps; --json has all)"
            say(f"{measure.measure}, by point and step{more}", "bold")
            console.print(_points(found, measure, most, console.width))
            say()
            say(f"{measure.measure}, by phase: medians over the steps that count, and the total of all", "bold")
            console.print(_phases(measure, most))
    if found.stacks:
        say()
        listed = min(most, len(found.stacks))
        say(f"What took memory, by stack ({listed} of {len(found.stacks)})", "bold")
        say("A stack that is named may give its memory back in a later phase; where that is known, it is told.", "dim")
        for stack in found.stacks[:most]:
            _stack(stack, say)


def devices(found: Growth, say: Say) -> None:
    """The end of each device's allocator, with what private pools retain told as that."""
    for line in found.course.last["devices"]:
        device = device_at_the_end(line)
        say(
            f"{text(device['device'])} at the end: {size(device['allocated'])} allocated, {size(device['reserved'])} "
            f"reserved; peaks {size(device['peak_allocated'])} and {size(device['peak_reserved'])}"
        )
        if device["private_reserved"]:
            held, used, retained = (device[f"private_{name}"] for name in ("reserved", "active", "retained"))
            say(f"  private pools hold {size(held)}, of which {size(used)} are in use:")
            say(f"  {size(retained)} of capacity are retained for replays, which is no leak by itself")


def _measures(measures: Sequence[OfMeasure], width: int) -> RenderableType:
    by_step = ["a step (95 %)"] if width >= _WIDE else ["a step"] if width >= columns.NARROW else []
    table = columns.table("", "first", "last", "change", *by_step, "", left=("",), folded=("",))
    for each in measures:
        lowest = each.lowest
        trend = slope(lowest.trend) if width >= _WIDE else change(lowest.trend.slope if lowest.trend else None)
        cells = [size(lowest.first), size(lowest.last), change(lowest.change), *([trend] if by_step else [])]
        style = "red" if each.grows and not each.measure.is_capacity else "yellow" if each.grows else ""
        table.add_row(text(each.measure), *cells, verdict(each), style=style)
    return table


def _points(found: Growth, of: OfMeasure, most: int, width: int) -> RenderableType:
    """Absolute numbers of some steps, then what lies between the first that counts and the last."""
    steps = _some(found.course.steps, width)
    by_step = ["a step"] if width >= _WIDE else []
    table = columns.table("point", *(f"step {step}" for step in steps), "change", *by_step, folded=("point",))
    for each in of.points[:most]:
        at = dict(found.course.at(each.place, of.measure))
        trend = "-" if each.trend is None else change(each.trend.slope)
        cells = [*(size(at.get(step)) for step in steps), change(each.change), *([trend] if by_step else [])]
        table.add_row(text(each.place), *cells)
    if len(of.points) > most:
        table.add_row(f"and {len(of.points) - most} more (--most, --json)")
    return table


def _some(steps: Sequence[int], width: int) -> list[int]:
    """The first step, the first that counts, the last, and what lies evenly between; of two, the latter two."""
    beside = _NAMES + (2 if width >= _WIDE else 1) * _COLUMN
    most = max(2, min(8, (width - beside) // _COLUMN))
    if len(steps) <= most:
        return list(steps)
    if most <= 2:
        return [steps[1], steps[-1]]
    return [steps[0], *(steps[1 + index * (len(steps) - 2) // (most - 2)] for index in range(most - 1))]


def _phases(of: OfMeasure, most: int) -> RenderableType:
    table = columns.table("from", "to", "change", "total", "phase", folded=("phase",))
    for phase in of.phases[:most]:
        style = "red" if phase in of.growing and not of.measure.is_capacity else ""
        cells = size(phase.before), size(phase.after), change(phase.median), change(phase.total)
        table.add_row(*cells, text(phase.name), style=style)
    if len(of.phases) > most:
        table.add_row("", "", "", "", f"and {len(of.phases) - most} more (--most, --json)")
    return table


def _stack(stack: GrownStack, say: Say) -> None:
    alive = "" if stack.alive is None else f", {size(stack.alive)} still held at the end of their steps"
    say(
        f"{change(stack.bytes)} in {stack.count} allocation(s) of {stack.steps} step(s){alive}: "
        f"{text(stack.memory)}, {text(stack.begins)} -> {text(stack.ends)}"
    )
    for file, line, function in stack.frames[:_MOST_FRAMES]:
        say(f"  {text(file)}:{line}" + (f" {text(function)}" if function else ""), "dim")
    if not stack.frames:
        say("  its stack was not recorded", "dim")
