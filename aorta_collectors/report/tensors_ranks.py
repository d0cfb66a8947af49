"""The ranks of a run against each other in a terminal: which of them differs, where that begins, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.bundles.ranks import Across, RankComparison
from aorta_collectors.report import columns
from aorta_collectors.report.tensors_words import STYLES, apart, place, say_to, state_counts
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def render(found: Sequence[RankComparison], console: Console, most: int) -> None:
    """Write each trial's.

    Args:
        most: Rows of each table.
    """
    say = say_to(console)
    for index, each in enumerate(found):
        if index:
            say()
        say(f"{text(each.label)}: {text(each.what)} of ranks {_ranks(each.ranks)} against each other", "bold")
        say(f"criterion  {each.criterion.describe()}")
        for note in each.notes:
            say(f"note: {text(note)}", "yellow")
        total = sum(each.counts.values())
        if each.all_matched:
            say(f"All {total} are the same on all ranks.", "bold green")
            continue
        say(f"{total}, each on all ranks: {state_counts(dict(each.counts))}.", "bold red")
        for rank, count in sorted(each.outliers.items(), key=lambda item: -item[1]):
            say(f"Rank {rank} differs from the majority in {count} of them.", "bold red")
        first = each.first_divergence
        if first is not None:
            say(f"First divergence: {place(first.observation)}")
            if not first.majority:
                say("No value has a majority of the ranks, so that none is known to be the right one.", "yellow")
        listed = f" ({most} of {len(each.unmatched)}; --most)" if len(each.unmatched) > most else ""
        say()
        say(f"What is not the same on all ranks{listed}", "bold")
        console.print(_table(each.unmatched[:most]))


def _table(rows: Sequence[Across]) -> RenderableType:
    table = columns.table(
        "step", "state", "ranks", "abs. diff", "observation", left=("state",), folded=("observation",)
    )
    for row in rows:
        groups = " | ".join(_ranks(group) for group in row.groups)
        missing = f" without {_ranks(row.missing)}" if row.missing else ""
        found = max(
            (pair.difference for pair in row.pairs.values() if pair.difference is not None),
            key=lambda difference: difference.largest_absolute or 0.0,
            default=None,
        )
        of = row.observation
        name = text(f"{of.name} #{of.invocation}")
        table.add_row(str(of.step), row.state, groups + missing, apart(found)[0], name, style=STYLES[row.state])
    return table


def _ranks(ranks: Sequence[int]) -> str:
    """Such as 0-2,5."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
