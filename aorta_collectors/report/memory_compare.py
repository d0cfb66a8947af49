"""The memory of two runs in a terminal: at the same points the absolute numbers of both, then what lies between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.bundles.growth import Growth
from aorta_collectors.analysis.bundles.memory_compare import MeasurePair, MemoryComparison, RunPair
from aorta_collectors.analysis.bundles.memory_run import Measure
from aorta_collectors.report import columns
from aorta_collectors.report.memory import devices
from aorta_collectors.report.memory_words import change, size, slope, unjudged, where_beyond
from aorta_collectors.report.tensors_words import Say, say_to
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SHOWN = ("rss", "allocated", "reserved")


def render(
    comparison: MemoryComparison, console: Console, baseline: str, candidate: str, most: int = 20, every: bool = False
) -> None:
    """Write what a person wants to know first, first.

    Args:
        baseline, candidate: The sides as they were named.
        most: Rows of each table.
        every: Whether points and phases are shown of all numbers; else of those that differ, or of the main ones.
    """
    say = say_to(console)
    say(f"baseline   {text(baseline)}")
    say(f"candidate  {text(candidate)}")
    for side, names in (("baseline", comparison.only_baseline), ("candidate", comparison.only_candidate)):
        if names:
            say(f"only in the {side}, and compared with nothing: {'; '.join(map(text, names[:most]))}", "yellow")
    if not comparison.pairs:
        say("Nothing to compare: the sides have no cell, trial and rank in common.", "bold red")
    for pair in comparison.pairs:
        say()
        _pair(pair, console, say, most, every)


def _pair(pair: RunPair, console: Console, say: Say, most: int, every: bool) -> None:
    a, b = pair.baseline.run.label, pair.candidate.run.label
    both, alone, other = pair.points
    say(text(a if a == b else f"{a} / {b}"), "bold")
    say(f"{both} points on both sides, {alone} in the baseline alone, {other} in the candidate alone")
    for side in (pair.baseline, pair.candidate):
        for note in side.notes:
            say(f"note: {text(side.run.label)}: {text(note)}", "yellow")
    for found in pair.found:
        _found(found, say)
    short = next((side for side in (pair.candidate, pair.baseline) if not side.is_judged), None)
    if short is not None:
        say(f"Whether either grows more cannot be told: {unjudged(short)}.", "bold yellow")
    if not pair.found:
        grows = ", and grows no more," if short is None else ""
        say(f"The candidate holds no more in use than the baseline{grows} by {_least(pair)}.", "bold green")
    _of_the_baseline(pair, say)
    for name, side, alone_there in (
        ("baseline", pair.baseline, pair.only_baseline),
        ("candidate", pair.candidate, pair.only_candidate),
    ):
        _alone(name, side, alone_there, say)
    say()
    say("Medians where a step of the candidate holds least", "bold")
    console.print(_measures(pair, console.width))
    for name, side in (("baseline", pair.baseline), ("candidate", pair.candidate)):
        if side.course.last["devices"]:
            say(f"{name}:")
            devices(side, say)
    for each in (each for each in pair.measures if not each.is_nothing):
        if every or each in pair.found or (not pair.found and each.measure.name in _SHOWN):
            say()
            say(f"{each.measure}, medians by point", "bold")
            console.print(_points(each, most))
            say(f"{each.measure}, change in each phase, a step on average", "bold")
            console.print(_phases(each, most))


def _of_the_baseline(pair: RunPair, say: Say) -> None:
    """What grows in the baseline: whether the candidate has cured it."""
    worse = {found.measure for found in pair.found}
    for mine in pair.baseline.growing:
        theirs = pair.candidate.of(mine.measure)
        if theirs is None or mine.measure in worse:
            continue
        slopes = f"{slope(mine.lowest.trend)} a step, against {slope(theirs.lowest.trend)} in the candidate"
        if theirs.grows:
            say(f"{mine.measure} grows on both sides: {slopes}", "yellow")
        elif pair.candidate.is_judged:
            say(f"{mine.measure} grows in the baseline, and not in the candidate: {slopes}", "green")


def _alone(name: str, side: Growth, measures: Sequence[Measure], say: Say) -> None:
    """Numbers that one side alone has, such as those of a device or of private pools: nothing there to compare with."""
    known = [found for measure in measures if (found := side.of(measure)) is not None]
    told = [f"{text(each.measure)} {size(each.lowest.median)}{', grows' * each.grows}" for each in known]
    if told:
        say(f"only in the {name}: {'; '.join(told)}", "yellow")


def _least(pair: RunPair) -> str:
    return f"{size(pair.baseline.least_bytes)} or more"


def _found(found: MeasurePair, say: Say) -> None:
    lowest = found.lowest
    if found.grows_more:
        say(
            f"{found.measure} grows in the candidate: {slope(lowest.candidate.trend)} a step, against "
            f"{slope(lowest.baseline.trend)} in the baseline",
            "bold red",
        )
        say(f"  {where_beyond(found)}")
    else:
        say(
            f"{found.measure} is larger in the candidate: {size(lowest.candidate.median)} against "
            f"{size(lowest.baseline.median)} at {text(lowest.place)}, {change(lowest.difference)}",
            "bold red",
        )


def _measures(pair: RunPair, width: int) -> RenderableType:
    wide = width >= columns.NARROW
    titles = ["baseline", "candidate", "difference", *(["slope baseline", "slope candidate"] if wide else [])]
    table = columns.table("", *titles, folded=("",))
    for each in (each for each in pair.measures if not each.is_nothing):
        a, b = each.lowest.baseline, each.lowest.candidate
        cells = [size(a.median), size(b.median), change(each.lowest.difference)]
        if wide:
            cells += ["-" if side.trend is None else change(side.trend.slope) for side in (a, b)]
        table.add_row(text(each.measure), *cells, style="red" if each in pair.found else "")
    return table


def _points(pair: MeasurePair, most: int) -> RenderableType:
    table = columns.table("baseline", "candidate", "difference", "point", folded=("point",))
    for each in pair.points[:most]:
        table.add_row(
            size(each.baseline.median), size(each.candidate.median), change(each.difference), text(each.place)
        )
    if len(pair.points) > most:
        table.add_row("", "", "", f"and {len(pair.points) - most} more (--most, --json)")
    return table


def _phases(pair: MeasurePair, most: int) -> RenderableType:
    table = columns.table("baseline", "candidate", "difference", "phase", folded=("phase",))
    for each in pair.phases[:most]:
        sides = (change(side.total / side.times) for side in (each.baseline, each.candidate))
        style = "red" if each in pair.growing else ""
        table.add_row(*sides, change(each.difference), text(each.name), style=style)
    if len(pair.phases) > most:
        table.add_row("", "", "", f"and {len(pair.phases) - most} more (--most, --json)")
    return table
