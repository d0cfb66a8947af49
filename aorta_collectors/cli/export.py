"""`aorta-collectors export PATH --format F -o TARGET`: captures for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aorta_collectors.analysis.captures import NUMERICS, Captures
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.cli.progress import Bar
from aorta_collectors.cli.reading import selecting, tell_problems
from aorta_collectors.errors import ArtifactError
from aorta_collectors.export.formats import FORMATS, Format, Request
from aorta_collectors.export.selection import condition
from aorta_collectors.export.target import whole
from aorta_collectors.printable import printable

_TRACKS = 50


def _captures(path: Path, chosen: Format) -> tuple[Captures | None, Captures | None]:
    """What layer_numerics left, and what numerics did, as far as it goes into a format; not nothing of both.

    Raises:
        ArtifactError: It cannot be read, or nothing was captured there.
    """
    try:
        captures = captures_below(path)
    except ArtifactError:
        if not chosen.has_numerics:
            raise
        return None, captures_below(path, NUMERICS)
    try:
        numerics = captures_below(path, NUMERICS) if chosen.has_numerics else None
    except ArtifactError:
        return captures, None
    left_any = numerics is not None and any(trial.processes for trial in numerics.trials)
    return captures, numerics if left_any else None


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", required=True, type=click.Choice(list(FORMATS)), help="What to make.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The file or directory to write.")
@click.option("--force", is_flag=True, help="Replace what an earlier export wrote there.")
@selecting
@click.option("--layer", multiple=True, help="Only of this layer; * stands for any characters (repeatable).")
@click.option("--role", multiple=True, help="Only of this channel, such as act (repeatable).")
@click.option("--tracks", type=click.IntRange(min=0), help=f"trace: most counters of a process. Default: {_TRACKS}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(
    path: Path,
    format_: str,
    output: Path,
    force: bool,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    layer: tuple[str, ...],
    role: tuple[str, ...],
    tracks: int | None,
    as_json: bool,
) -> None:
    """Write the captures below PATH in a format that other tools read.

    \b
    parquet      a directory: records, summaries, receipts and trials, a file
                 each; of numerics: spans, stats, steps, escalations, bricks
    csv          the same as text
    trace        a file for ui.perfetto.dev: steps, log10 of tensors' largest
                 magnitudes, and bad records on a timeline of each rank; of
                 numerics: spans, which flows join across ranks, and loss
    tensorboard  a directory of logs: magnitudes and bad elements over steps
    openmetrics  a file of metrics: steps, records, first bad step, throughput,
                 what observing took, and verdicts

    What both collectors left goes into one export. --layer, --role and --tracks are about layer_numerics' records: a
    trace has the counters of the tensors that went bad, then of those with the largest magnitudes. TARGET is written
    whole or not at all.

    Example: aorta-collectors export RUN_DIR --format parquet -o run.parquet
    """
    chosen = FORMATS[format_]
    if not chosen.has_records and (layer or role):
        raise click.UsageError(f"{format_} has no records in it, so that --layer and --role choose nothing")
    if tracks is not None and format_ != "trace":
        raise click.UsageError("--tracks is for --format trace")
    captures, numerics = (each and each.only(cell, trial, rank) for each in _captures(path, chosen))
    if captures is None and (layer or role or tracks is not None):
        raise click.UsageError("--layer, --role and --tracks are about layer_numerics' records, and there are none")
    for each in filter(None, (captures, numerics)):
        tell_problems(each)
    captures = captures or Captures(path, ())
    with Bar("exporting") as bar, Database(captures, bar) as database, whole(output, force, chosen.files) as written:
        wanted = condition(database, layer, role)
        chosen.write(database, written, Request(wanted, _TRACKS if tracks is None else tracks, numerics))
        files = [file for file in [written, *written.rglob("*")] if file.is_file()]
        num_bytes = sum(file.stat().st_size for file in files)
    if as_json:
        made = {"format": format_, "target": str(output), "num_files": len(files), "num_bytes": num_bytes}
        click.echo(json.dumps(made, indent=2))
    else:
        click.echo(f"{printable(str(output))}: {format_}, {len(files)} file(s), {num_bytes} bytes")
