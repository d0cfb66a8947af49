"""One name over its invocations in a terminal: absolute values first, where a difference begins, whether it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.bundles.judge import MATCHED
from aorta_collectors.analysis.bundles.pair import Pair
from aorta_collectors.analysis.bundles.series import Series, apart
from aorta_collectors.report import columns
from aorta_collectors.report.tensors_words import STYLES, Say, part, say_to, ulps
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def render(found: Sequence[Series], console: Console, most: int) -> None:
    """Write each of them.

    Args:
        most: Rows of each table.
    """
    say = say_to(console)
    for index, each in enumerate(found):
        if index:
            say()
        a, b = each.baseline.label, each.candidate.label
        say(f"{text(each.name)}, {text(a if a == b else f'{a} / {b}')}", "bold")
        for note in each.notes:
            say(f"note: {text(note)}", "yellow")
        console.print(_table(_shown(each, most), console.width))
        if len(each.pairs) > most:
            say(f"{most} of {len(each.pairs)} invocations, around where it begins (--most, --json)", "dim")
        _verdict(each, say)


def _verdict(found: Series, say: Say) -> None:
    begins = found.begins
    if begins is None:
        unclear = sum(pair.state != MATCHED for pair in found.pairs)
        if unclear:
            say(
                f"None of {len(found.pairs)} is known to differ; {unclear} cannot be told, or are on one side.",
                "yellow",
            )
        else:
            say(f"All {len(found.pairs)} match.", "bold green")
        return
    since = found.last_matched
    matched = "nothing before it matched" if since is None else f"the last to match is {since.either.invocation}"
    say(f"It begins with invocation {begins.either.invocation}, in step {begins.either.step}; {matched}.", "bold red")
    growth = found.growth
    if growth is None:
        return
    if growth.low is None or growth.high is None:
        say(f"{growth.points} differences are too few to tell a trend from chance.")
        return
    between = f"95 % between {number(growth.low)} and {number(growth.high)}"
    way = "grows by" if growth.grows else "shrinks by" if growth.shrinks else "has no trend:"
    say(f"From there on the largest difference {way} {number(abs(growth.slope))} an invocation ({between}).")


def _shown(found: Series, most: int) -> Sequence[Pair]:
    begins = found.begins
    first = 0 if begins is None else max(0, found.pairs.index(begins) - most // 4)
    return found.pairs[min(first, max(0, len(found.pairs) - most)) :][:most]


def _table(pairs: Sequence[Pair], width: int) -> RenderableType:
    replays = any(pair.either.replay is not None for pair in pairs)
    wide = width >= columns.NARROW
    titles = ["inv.", "step", *(["replay"] if replays else []), "baseline max", "candidate max", "abs. diff"]
    table = columns.table(*titles, *(["ulp", "differ"] if wide else []), "state", left=("state",))
    for pair in pairs:
        of, found = pair.either, pair.difference
        cells = [str(of.invocation), str(of.step), *([number(of.replay)] if replays else [])]
        cells += ["-" if side is None else number(side.abs_max) for side in (pair.baseline, pair.candidate)]
        cells.append(number(apart(pair)))
        if wide:
            cells += [ulps(found.largest.ulps), part(found.outside, found.numel)] if found else ["-", "-"]
        table.add_row(*cells, pair.state, style=STYLES[pair.state])
    return table
