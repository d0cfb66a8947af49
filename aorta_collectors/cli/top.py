"""`aorta-collectors top PATH`: a live view of where the time of a run goes."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aorta_collectors.analysis.top import LiveProfile
from aorta_collectors.analysis.top_snapshot import Top
from aorta_collectors.cli.live import watch_live
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import output_options
from aorta_collectors.errors import ArtifactError
from aorta_collectors.report.columns import ascii_only
from aorta_collectors.report.top import SORTS, screen

if TYPE_CHECKING:
    from rich.console import RenderableType

_NOT_HELD = 3


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Show what is known now, and exit; without a terminal it is always so.")
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="time", show_default=True, help="What bricks are sorted by."
)
@click.option(
    "--assert-efficiency",
    "efficiency",
    type=click.FloatRange(0, 1),
    help="Exit with 3 if the bricks reach less than this part of the roofline, weighted by their time.",
)
@output_options
def top(
    path: Path, interval: float, once: bool, sort: str, efficiency: float | None, as_json: bool, output: Path | None
) -> None:
    """Show where the time of a run goes while it runs: its pace, its loss, and its bricks, the slowest first.

    PATH is a run directory, a trial's record or directory, or what NUMERICS_DIR names. It need not be there yet, except
    with --once. Keys: s sorts bricks by something else, q or Ctrl-C ends it; it ends by itself with the run.

    Where each module has spans (profile: deferred or immediate, no `steps` filter), bricks are those of the last 10
    seconds, or of the last step where that takes longer. Else, and once the run has ended, they are of the whole run,
    from summaries, which a program brings up to date every 30 seconds; efficiency and bound always are. "of step" is a
    brick's time without its parts. The loss is that of the first rank that has one; its moving average has a smoothing
    of 0.9. Of lines that were there before, the last 8 MB of each kind are read.

    --json, which goes with --once, prints one document: `progress` and `training`, `span`, `bricks` and `steps`,
    `efficiency`, and `looks`, the escalations. Times end in _us, _ms or _s, parts of a whole are from 0 to 1.

    Examples: aorta-collectors top numerics_out;
    aorta-collectors top triage_results/NAN-17 --once --assert-efficiency 0.5

    Exit codes: 0, also for q and Ctrl-C; 1 nothing is there (--once), or the efficiency that is asserted is not known;
    3 it is lower; 128 and the signal's number for SIGTERM and SIGHUP.
    """
    if as_json and not once:
        raise click.UsageError("--json goes with --once; for the course of a run there is numerics' steps_*.jsonl")
    seen, sorts = LiveProfile(path), _Sorts(sort)
    with Output(output) as out:
        console = out.console()
        if once or not console.is_terminal or console.is_dumb_terminal:
            last: Top | None = seen.look()
            assert last is not None
            if last.progress is None and not last.cells:
                why = "; ".join(last.problems) or last.awaited
                raise ArtifactError(f"{why}. On a terminal, without --once, it is waited for")
            if as_json:
                click.echo(json.dumps(last.to_json(), allow_nan=False), file=out.stream)
            else:
                width = console.width if console.is_terminal else 100
                console.print(screen(last, width, ascii_only=ascii_only(console), sort=sort))
        else:
            try:
                last = watch_live(seen.look, sorts.draw, interval, console, pressed=sorts.pressed, hint=sorts.hint)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                # What is still to be flushed would be an error, of which nobody could be told.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(129)
    if efficiency is not None and last is not None:
        _assert(last, efficiency)


class _Sorts:
    """What bricks are sorted by, which a key changes."""

    def __init__(self, sort: str) -> None:
        self._sort = sort

    def draw(self, seen: Top, width: int, height: int | None = None, *, ascii_only: bool = False) -> RenderableType:
        return screen(seen, width, height, ascii_only=ascii_only, sort=self._sort)

    def pressed(self, keys: str) -> None:
        names = list(SORTS)
        for _ in range(keys.lower().count("s")):
            self._sort = names[(names.index(self._sort) + 1) % len(names)]

    def hint(self) -> str:
        return f"q quits, s sorts (now by {self._sort})"


def _assert(top: Top, wanted: float) -> None:
    """Raises ArtifactError where the efficiency is not known."""
    if top.efficiency is None:
        raise ArtifactError(
            "the efficiency of bricks is not known: it takes `profile: deferred` or `immediate`, and counted operations"
        )
    if top.efficiency < wanted:
        click.echo(f"efficiency is {top.efficiency:.4g}, less than the {wanted:g} asserted", err=True)
        sys.exit(_NOT_HELD)
