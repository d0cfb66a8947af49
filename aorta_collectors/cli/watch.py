"""`aorta-collectors watch PATH`: a live view of a running trial."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from aorta_collectors.analysis.snapshot import Snapshot
from aorta_collectors.analysis.watch import Watch
from aorta_collectors.cli.live import PARTS, watch_live
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import output_options
from aorta_collectors.errors import ArtifactError
from aorta_collectors.report.columns import ascii_only
from aorta_collectors.report.watch import screen
from aorta_collectors.report.watch_lines import Changes

_BAD = 3


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Show what is known now, and exit.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if something bad was seen.")
@output_options
def watch(path: Path, interval: float, once: bool, exit_code: bool, as_json: bool, output: Path | None) -> None:
    """Watch a trial while it runs: its pace, the largest magnitudes, what is bad, and ranks that fall behind.

    PATH is a run directory, a trial's record or directory, or what NANLOG_DIR names. It need not be there yet. Of a run
    directory, the trial that runs is shown, and after it the next. On a terminal the view is drawn anew until the run
    has ended, or until q or Ctrl-C; elsewhere a line is printed for whatever has changed.

    How fresh it is: the step is that of this moment. Bad values are there when their step has been read, one step
    later. Magnitudes of clean tensors are written in one step of NANLOG_SAMPLE_EVERY (50); the rest of a summary, such
    as the overhead, every NANLOG_FLUSH_SEC (30) seconds. Lower them for a view that is fresher. With
    NANLOG_PRE_CONTEXT, unsampled clean steps stay in the program's memory until something bad is seen. Of records that
    were there before, the last 8 MB are read.

    --json prints a document at each look, one a line. It has `state` (waiting, running, ended) and what is `awaited`;
    the `cell` and `trial` that are shown, and all `cells`; `progress`: ranks, steps, steps_per_s, overhead, first_bad,
    first_nonfinite, origin; `magnitudes`: the worst, their headroom in bits, the trend over steps, and bad tensors; and
    `problems` with reading. What goes to a file with -o is there when watching ends.

    Example: aorta-collectors watch triage_results/NAN-17/training/20261129-101500

    Exit codes: 0, also for q and Ctrl-C; 1 nothing is there (--once); 3 something bad was seen (--exit-code); 128 and
    the signal's number for SIGTERM and SIGHUP.
    """
    watched, seen_bad = Watch(path), False

    def look() -> Snapshot:
        nonlocal seen_bad
        snapshot = watched.look()
        seen_bad = seen_bad or snapshot.is_bad
        return snapshot

    with Output(output) as out:
        console = out.console()
        if once:
            _show(look(), out, as_json)
        elif as_json or not console.is_terminal or console.is_dumb_terminal:
            with contextlib.suppress(KeyboardInterrupt):
                _tell(look, interval, out, as_json)
        else:
            try:
                watch_live(look, screen, interval, console)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                # What is still to be flushed would be an error, of which nobody could be told.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(129)
    sys.exit(_BAD if exit_code and seen_bad else 0)


def _show(snapshot: Snapshot, out: Output, as_json: bool) -> None:
    """What is known now. Raises ArtifactError if that is nothing."""
    if snapshot.progress is None and not snapshot.cells:
        why = "; ".join(snapshot.problems) or snapshot.awaited
        raise ArtifactError(f"{why}. Without --once it is waited for")
    if as_json:
        click.echo(json.dumps(snapshot.to_json(), allow_nan=False), file=out.stream)
    else:
        console = out.console()
        console.print(screen(snapshot, console.width, ascii_only=ascii_only(console)))


def _tell(look: Callable[[], Snapshot], interval: float, out: Output, as_json: bool) -> None:
    """A line for each change, or a JSON document for each look, until the run has ended."""
    changes = Changes()
    while True:
        began = time.monotonic()
        snapshot = look()
        for line in [json.dumps(snapshot.to_json(), allow_nan=False)] if as_json else changes.lines(snapshot):
            click.echo(line, file=out.stream)
        if snapshot.state == "ended":
            return
        time.sleep(max(interval, PARTS * (time.monotonic() - began)))
