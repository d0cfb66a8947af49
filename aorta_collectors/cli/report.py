"""`aorta-collectors report PATH`: one HTML file that shows a whole run."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import click

from aorta_collectors.analysis.captures import SOURCES
from aorta_collectors.analysis.report.found import found_below
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.progress import Bar
from aorta_collectors.cli.reading import output_options, selecting, tell_problems
from aorta_collectors.printable import printable
from aorta_collectors.report.after_sweep import NAME


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@selecting
@output_options
@click.option("--open", "opened", is_flag=True, help="Open it in a browser.")
def report(
    path: Path,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    as_json: bool,
    output: Path | None,
    opened: bool,
) -> None:
    """Write one self-contained HTML file: where it starts, what led there, which cells differ, where the time went.

    PATH is a run directory, one trial, or what NANLOG_DIR or NUMERICS_DIR named. It shows what layer_numerics and what
    numerics left, as far as they were there. The file is report.html in that directory, unless -o
    names another; it loads nothing from anywhere, so that it can be attached to a ticket. Links to artifacts in it are
    relative to where it lies. With --json, what it shows is printed instead, or written with -o, and no HTML.

    Example: aorta-collectors report triage_results/NAN-17/training/20261129-101500
    """
    found = found_below(path).only(cell, trial, rank)
    tell_problems(found.captures)
    with Bar("reading records") as bar:
        if as_json:
            from aorta_collectors.report.html import read_report
            from aorta_collectors.report.html.plain import plain

            with Output(output) as out:
                out.json(plain(read_report(found, bar)))
            return
        from aorta_collectors.report.html import write_report

        folder = path if path.is_dir() else path.parent
        if folder.resolve().name in {
            source.collector for source in SOURCES
        }:  # not among a trial's artifacts, which are as they were verified
            folder = folder.resolve().parent
        target = output or folder / NAME
        write_report(found, target, bar)
    address = target.absolute().as_uri()
    click.echo(f"{printable(os.fspath(target))} ({target.stat().st_size / 1e6:.1f} MB)\n{address}")
    if opened:
        webbrowser.open(address)
