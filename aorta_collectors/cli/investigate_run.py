"""`aorta-collectors investigate run ROOT`: run what an investigation has declared, or what is left of it."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from aorta_collectors.investigate.running import run_investigation
from aorta_collectors.investigate.starting import NotAsBefore
from aorta_collectors.printable import printable
from aorta_collectors.report.evidence import shown

_INTERRUPTED = 130


@click.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", type=click.IntRange(min=1), metavar="N", help="Make the next run alone, which is number N.")
@click.option("--allow-changes", is_flag=True, help="Go on although machine, software or code changed; recorded.")
def run(root: Path, only: int | None, allow_changes: bool) -> None:
    """Make the runs of the investigation in ROOT, in the order that was declared.

    Each run is a sweep of one trial. What it leaves is kept in ROOT/runs, whether it failed or not, and no run is
    repeated; only one that was interrupted is made again, beside what is left of it. Ctrl-C ends the present run, and
    the same command goes on later. It refuses when machine, packages, a file that a command names, or a tracked source
    file of their work trees is not as it was at the first run; notes, and the interpreter's work tree, may change.

    Example: aorta-collectors investigate run nan-42

    Exit codes: 0 all runs completed; 1 some failed, or it cannot go on; 130 interrupted.
    """
    again = f"aorta-collectors investigate run {shown(root)}"
    try:
        with _interrupted_by_any():
            standing = run_investigation(root, sys.stderr, only=only, allow_changes=allow_changes)
    except NotAsBefore as error:
        lines = [printable(line, 10_000) for line in error.lines]
        click.echo("\n".join((f"Error: {lines[0]}", *lines[1:-1], f"{lines[-1]} [{error.slug}]")), err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo(f"Interrupted; what was done is kept. To go on: {again}", err=True)
        sys.exit(_INTERRUPTED)
    completed, failed = standing.count("completed"), standing.count("failed")
    click.echo(f"{completed} completed, {failed} failed, {standing.left} left, below {shown(root / 'runs')}")
    if standing.count("interrupted"):
        click.echo(f"A sweep was killed. To go on: {again}", err=True)
        sys.exit(_INTERRUPTED)
    click.echo(f"To go on: {again}" if standing.left else f"Next: aorta-collectors investigate report {shown(root)}")
    sys.exit(1 if failed else 0)


@contextlib.contextmanager
def _interrupted_by_any() -> Iterator[None]:
    """Have SIGTERM and SIGHUP, unless they are ignored, do what Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
