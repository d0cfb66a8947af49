"""`aorta-collectors merge DIRECTORY`: the records of all ranks in one order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import click

from aorta_collectors.analysis.artifacts import layer_numerics_below
from aorta_collectors.analysis.merged import first_bad, merged


@click.command()
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("--first", "most", type=click.IntRange(min=1), help="Print the first so many records only.")
@click.option("--first-bad", "only_first_bad", is_flag=True, help="Print the earliest bad record alone.")
def merge(directory: Path, most: int | None, only_first_bad: bool) -> None:
    """Print the records of all processes of one trial in one order, as JSON lines.

    DIRECTORY is a trial's, or what NANLOG_DIR named. Records are ordered by attempt (`restart`), step and place within
    the step, not by time. Steps that evaluated are left out of the count; ranks whose models differ are lined up by
    forward and backward.

    Example: aorta-collectors merge nan_logger_out --first-bad
    """
    with layer_numerics_below(directory) as artifacts:
        if only_first_bad:
            found = first_bad(artifacts)
            records = iter([] if found is None else [found])
            if found is None:
                click.echo("no bad record", err=True)
        else:
            records = itertools.islice(merged(artifacts), most)
        for record in records:
            click.echo(json.dumps(record))
